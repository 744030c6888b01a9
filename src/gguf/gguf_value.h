// One metadata value of a GGUF file, as a view of the file's bytes, and the typed ways to read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

// The numbers are those of the file.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
inline constexpr uint32_t kGgufValueTypeCount = 13;

// "u8", "string", "array", ...
std::string_view GgufValueTypeName(GgufValueType type);

// Bytes of one number or bool; 0 for strings and arrays, whose size varies.
int GgufValueTypeBytes(GgufValueType type);

// Already validated against the file's end by whoever made it. Views: the file must outlive it.
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;
  GgufValueType element_type = GgufValueType::kU8;  // of an array's elements; otherwise = type
  uint64_t count = 1;                               // elements of an array; otherwise 1
  std::span<const std::byte> data;                  // payload; array heads left out
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

// Typed reads. All fail with kCorrupt, naming the key, the type it holds and the type wanted, or
// the value that does not fit. Integer reads take any integer width whose value fits; float reads
// take f32 and f64 (rounded). T: uint32_t, int32_t, uint64_t, int64_t.
template <typename T>
Result<T> ReadInteger(const GgufEntry& entry);
Result<float> ReadFloat(const GgufEntry& entry);
Result<bool> ReadBool(const GgufEntry& entry);
Result<std::string_view> ReadString(const GgufEntry& entry);  // a view into the file

template <typename T>
Result<std::vector<T>> ReadIntegers(const GgufEntry& entry);
Result<std::vector<float>> ReadFloats(const GgufEntry& entry);
Result<std::vector<bool>> ReadBools(const GgufEntry& entry);
Result<std::vector<std::string_view>> ReadStrings(const GgufEntry& entry);  // views into the file

// For people: numbers as shortest decimal, strings quoted, arrays as "[a, b, ... 49152 in all]"
// with at most `max_elements` shown, and strings cut after `max_string_bytes`.
std::string ToText(const GgufValue& value, size_t max_elements, size_t max_string_bytes);

// Untrusted text made fit for one line of a message: in single quotes, control bytes, quotes and
// backslashes escaped, cut after `max_bytes`.
std::string QuoteUntrusted(std::string_view text, size_t max_bytes = 64);

}  // namespace kvant
