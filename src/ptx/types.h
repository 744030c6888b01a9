// The value types of PTX, and sets of them. A register holds raw bits in a uint64_t; an
// instruction's type says how to read them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvant::ptx {

enum class Type : uint8_t {
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBf16,
  kBf16x2,
  kF32,
  kF64,
  kE4m3x2,
  kE5m2x2,
};

struct TypeTraits {
  std::string_view name;
  uint8_t bits;
  bool is_signed = false;
  bool is_float = false;
};

// In the order of Type.
inline constexpr std::array<TypeTraits, 21> kTypes = {{
    {"pred", 1},
    {"b8", 8},
    {"b16", 16},
    {"b32", 32},
    {"b64", 64},
    {"u8", 8},
    {"u16", 16},
    {"u32", 32},
    {"u64", 64},
    {"s8", 8, true},
    {"s16", 16, true},
    {"s32", 32, true},
    {"s64", 64, true},
    {"f16", 16, true, true},
    {"f16x2", 32, true, true},
    {"bf16", 16, true, true},
    {"bf16x2", 32, true, true},
    {"f32", 32, true, true},
    {"f64", 64, true, true},
    {"e4m3x2", 16, true, true},
    {"e5m2x2", 16, true, true},
}};

constexpr const TypeTraits& Traits(Type type) { return kTypes[static_cast<size_t>(type)]; }
constexpr int Bits(Type type) { return Traits(type).bits; }
constexpr int Bytes(Type type) { return Traits(type).bits / 8; }
constexpr bool IsSigned(Type type) { return Traits(type).is_signed; }
constexpr bool IsFloat(Type type) { return Traits(type).is_float; }

constexpr std::optional<Type> FindType(std::string_view name) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<Type>(i);
  }
  return std::nullopt;
}

// The low `bits` bits of value.
constexpr uint64_t LowBits(uint64_t value, int bits) {
  return bits >= 64 ? value : value & ((uint64_t{1} << bits) - 1);
}

// The value of the type's bits as a 64-bit integer: sign- or zero-extended.
constexpr uint64_t Extend(uint64_t value, Type type) {
  const int bits = Bits(type);
  const uint64_t low = LowBits(value, bits);
  if (!IsSigned(type) || bits == 64) return low;
  const uint64_t sign = uint64_t{1} << (bits - 1);
  return (low ^ sign) - sign;
}

}  // namespace kvant::ptx
