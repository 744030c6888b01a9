#include "gguf/weight_types.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>

#include "base/float16.h"

namespace kvant {
namespace {

constexpr WeightTypeInfo kInfos[] = {
    {WeightType::kF32, "F32", 1, 4, true},
    {WeightType::kF16, "F16", 1, 2, true},
    {WeightType::kQ4_0, "Q4_0", 32, 18, true},
    {WeightType::kQ4_1, "Q4_1", 32, 20, true},
    {WeightType::kQ5_0, "Q5_0", 32, 22, true},
    {WeightType::kQ5_1, "Q5_1", 32, 24, true},
    {WeightType::kQ8_0, "Q8_0", 32, 34, true},
    {WeightType::kQ2_K, "Q2_K", 256, 84, false},
    {WeightType::kQ3_K, "Q3_K", 256, 110, false},
    {WeightType::kQ4_K, "Q4_K", 256, 144, true},
    {WeightType::kQ5_K, "Q5_K", 256, 176, true},
    {WeightType::kQ6_K, "Q6_K", 256, 210, true},
    {WeightType::kIQ2_XXS, "IQ2_XXS", 256, 66, false},
    {WeightType::kIQ2_XS, "IQ2_XS", 256, 74, false},
    {WeightType::kIQ3_XXS, "IQ3_XXS", 256, 98, false},
    {WeightType::kIQ1_S, "IQ1_S", 256, 50, false},
    {WeightType::kIQ4_NL, "IQ4_NL", 32, 18, false},
    {WeightType::kIQ3_S, "IQ3_S", 256, 110, false},
    {WeightType::kIQ2_S, "IQ2_S", 256, 82, false},
    {WeightType::kIQ4_XS, "IQ4_XS", 256, 136, false},
    {WeightType::kI8, "I8", 1, 1, false},
    {WeightType::kI16, "I16", 1, 2, false},
    {WeightType::kI32, "I32", 1, 4, false},
    {WeightType::kI64, "I64", 1, 8, false},
    {WeightType::kF64, "F64", 1, 8, false},
    {WeightType::kIQ1_M, "IQ1_M", 256, 56, false},
    {WeightType::kBF16, "BF16", 1, 2, true},
    {WeightType::kTQ1_0, "TQ1_0", 256, 54, false},
    {WeightType::kTQ2_0, "TQ2_0", 256, 66, false},
    {WeightType::kMXFP4, "MXFP4", 32, 17, false},
    {WeightType::kNVFP4, "NVFP4", 64, 36, false},
    {WeightType::kQ1_0, "Q1_0", 128, 18, false},
};

constexpr int kMaxBlockValues = 256;
constexpr int kMaxBlockGroups = 16;

// One block of one type, taken apart. codes[block_values], scales and offsets[block_values/group].
using BlockUnpacker = void (*)(const std::byte* block, uint8_t* codes, float* scales,
                               float* offsets);

uint8_t U8(const std::byte* at) { return std::to_integer<uint8_t>(*at); }

float HalfAt(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return F16ToF32(half);
}

// 32 codes in 16 bytes: value i in the low half of byte i, value i + 16 in its high half.
void UnpackNibbles(const std::byte* packed, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = U8(packed + i) & 15;
    codes[i + 16] = U8(packed + i) >> 4;
  }
}

// Bit i of the 32-bit word at `bits` becomes bit 4 of code i.
void AddFifthBits(const std::byte* bits, uint8_t* codes) {
  uint32_t word;
  std::memcpy(&word, bits, sizeof word);
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>(((word >> i) & 1) << 4);
}

// [f16 scale][16 bytes of nibbles]
void UnpackQ4_0(const std::byte* block, uint8_t* codes, float* scales, float* offsets) {
  scales[0] = HalfAt(block);
  offsets[0] = 0;
  UnpackNibbles(block + 2, codes);
}

// [f16 scale][f16 offset][16 bytes of nibbles]
void UnpackQ4_1(const std::byte* block, uint8_t* codes, float* scales, float* offsets) {
  scales[0] = HalfAt(block);
  offsets[0] = HalfAt(block + 2);
  UnpackNibbles(block + 4, codes);
}

// [f16 scale][32 fifth bits][16 bytes of nibbles]
void UnpackQ5_0(const std::byte* block, uint8_t* codes, float* scales, float* offsets) {
  scales[0] = HalfAt(block);
  offsets[0] = 0;
  UnpackNibbles(block + 6, codes);
  AddFifthBits(block + 2, codes);
}

// [f16 scale][f16 offset][32 fifth bits][16 bytes of nibbles]
void UnpackQ5_1(const std::byte* block, uint8_t* codes, float* scales, float* offsets) {
  scales[0] = HalfAt(block);
  offsets[0] = HalfAt(block + 2);
  UnpackNibbles(block + 8, codes);
  AddFifthBits(block + 4, codes);
}

// [f16 scale][32 signed bytes]
void UnpackQ8_0(const std::byte* block, uint8_t* codes, float* scales, float* offsets) {
  scales[0] = HalfAt(block);
  offsets[0] = 0;
  for (int i = 0; i < 32; ++i) codes[i] = U8(block + 2 + i) ^ 0x80;  // q + 128
}

// The head that Q4_K and Q5_K share: [f16 d][f16 dmin][12 bytes: 8 scales and 8 minima of 6 bits].
// Bytes 0-3 hold scales 0-3, bytes 4-7 minima 0-3; the rest have their low halves in bytes 8-11
// (scale low, minimum high) and their top two bits above the six of bytes 0-7.
void UnpackScalesAndMinima(const std::byte* block, float* scales, float* offsets) {
  const float d = HalfAt(block), dmin = HalfAt(block + 2);
  const std::byte* packed = block + 4;
  for (int i = 0; i < 4; ++i) {
    const int low = U8(packed + i), high = U8(packed + i + 4), halves = U8(packed + i + 8);
    scales[i] = d * static_cast<float>(low & 63);
    offsets[i] = -(dmin * static_cast<float>(high & 63));
    scales[i + 4] = d * static_cast<float>((halves & 15) | ((low >> 6) << 4));
    offsets[i + 4] = -(dmin * static_cast<float>((halves >> 4) | ((high >> 6) << 4)));
  }
}

// 256 codes in 128 bytes: each 32 bytes hold 32 codes in their low halves, the next 32 in the high.
void UnpackNibbles256(const std::byte* packed, uint8_t* codes) {
  for (int chunk = 0; chunk < 4; ++chunk, packed += 32, codes += 64) {
    for (int i = 0; i < 32; ++i) {
      codes[i] = U8(packed + i) & 15;
      codes[i + 32] = U8(packed + i) >> 4;
    }
  }
}

// [head][128 bytes of nibbles]
void UnpackQ4_K(const std::byte* block, uint8_t* codes, float* scales, float* offsets) {
  UnpackScalesAndMinima(block, scales, offsets);
  UnpackNibbles256(block + 16, codes);
}

// [head][32 bytes: bit g of byte i is the fifth bit of value i of group g][128 bytes of nibbles]
void UnpackQ5_K(const std::byte* block, uint8_t* codes, float* scales, float* offsets) {
  UnpackScalesAndMinima(block, scales, offsets);
  UnpackNibbles256(block + 48, codes);
  const std::byte* fifth = block + 16;
  for (int group = 0; group < 8; ++group) {
    for (int i = 0; i < 32; ++i) {
      codes[group * 32 + i] |= static_cast<uint8_t>(((U8(fifth + i) >> group) & 1) << 4);
    }
  }
}

// [128 bytes of low nibbles][64 bytes of high pairs][16 signed scales][f16 d]
// Each half of the block holds 4 runs of 32 values: runs 0 and 1 in the low halves of 64 bytes,
// runs 2 and 3 in their high halves; run r has its top bits at bit 2r of 32 further bytes.
void UnpackQ6_K(const std::byte* block, uint8_t* codes, float* scales, float* offsets) {
  const float d = HalfAt(block + 208);
  for (int group = 0; group < 16; ++group) {
    scales[group] = d * static_cast<float>(static_cast<int8_t>(U8(block + 192 + group)));
    offsets[group] = 0;
  }
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = block + half * 64;
    const std::byte* high = block + 128 + half * 32;
    for (int run = 0; run < 4; ++run, codes += 32) {
      for (int i = 0; i < 32; ++i) {
        const int nibble = (U8(low + (run & 1) * 32 + i) >> (run / 2 * 4)) & 15;
        const int top = (U8(high + i) >> (run * 2)) & 3;
        codes[i] = static_cast<uint8_t>(nibble | (top << 4));
      }
    }
  }
}

BlockUnpacker UnpackerOf(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0:
      return UnpackQ4_0;
    case WeightType::kQ4_1:
      return UnpackQ4_1;
    case WeightType::kQ5_0:
      return UnpackQ5_0;
    case WeightType::kQ5_1:
      return UnpackQ5_1;
    case WeightType::kQ8_0:
      return UnpackQ8_0;
    case WeightType::kQ4_K:
      return UnpackQ4_K;
    case WeightType::kQ5_K:
      return UnpackQ5_K;
    case WeightType::kQ6_K:
      return UnpackQ6_K;
    default:
      return nullptr;
  }
}

Status CheckBlocks(const WeightTypeInfo& info, int64_t values) {
  if (values >= 0 && values % info.block_values == 0) return Status::Ok();
  return Status::InvalidArgument(std::to_string(values) + " values are not whole " +
                                 std::string(info.name) + " blocks of " +
                                 std::to_string(info.block_values));
}

// One group; a sum with 0 would lose the sign of a negative zero.
void DequantizeGroup(const uint8_t* codes, float scale, float offset, const GroupTraits& traits,
                     float* out) {
  for (int i = 0; i < traits.group; ++i) {
    const float value = scale * static_cast<float>(codes[i] - traits.zero);
    out[i] = traits.has_offset ? value + offset : value;
  }
}

void DequantizeBlocks(WeightType type, const std::byte* src, int64_t values, float* out) {
  const WeightTypeInfo& info = InfoOf(type);
  const GroupTraits traits = GroupTraitsOf(type);
  const BlockUnpacker unpack = UnpackerOf(type);
  const int groups = info.block_values / traits.group;
  uint8_t codes[kMaxBlockValues];
  float scales[kMaxBlockGroups], offsets[kMaxBlockGroups];
  for (int64_t done = 0; done < values; done += info.block_values, src += info.block_bytes) {
    unpack(src, codes, scales, offsets);
    for (int g = 0; g < groups; ++g) {
      DequantizeGroup(codes + g * traits.group, scales[g], offsets[g], traits, out);
      out += traits.group;
    }
  }
}

void ConvertHalves(const std::byte* src, int64_t values, float (*convert)(uint16_t), float* out) {
  for (int64_t i = 0; i < values; ++i) {
    uint16_t bits;
    std::memcpy(&bits, src + i * 2, sizeof bits);
    out[i] = convert(bits);
  }
}

}  // namespace

const WeightTypeInfo* FindWeightType(uint32_t number) {
  const auto* info = std::find_if(std::begin(kInfos), std::end(kInfos), [&](const auto& candidate) {
    return static_cast<uint32_t>(candidate.type) == number;
  });
  return info == std::end(kInfos) ? nullptr : info;
}

const WeightTypeInfo& InfoOf(WeightType type) {
  const WeightTypeInfo* info = FindWeightType(static_cast<uint32_t>(type));
  assert(info != nullptr);
  return *info;
}

Result<int64_t> TensorBytes(WeightType type, std::span<const int64_t> dims) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const WeightTypeInfo& info = InfoOf(type);
  if (dims.empty() || dims.size() > kMaxTensorDims) {
    return Status::Corrupt("has " + std::to_string(dims.size()) +
                           " dimensions, which is not in 1..4");
  }
  int64_t values = 1;
  for (const int64_t dim : dims) {
    if (dim <= 0) return Status::Corrupt("has a dimension of " + std::to_string(dim));
    if (values > kMax / dim) return Status::Corrupt("has more elements than 64 bits can count");
    values *= dim;
  }
  if (dims[0] % info.block_values != 0) {
    return Status::Corrupt("has rows of " + std::to_string(dims[0]) + " values, not whole " +
                           std::string(info.name) + " blocks of " +
                           std::to_string(info.block_values));
  }
  const int64_t blocks = values / info.block_values;
  if (blocks > kMax / info.block_bytes) {
    return Status::Corrupt("has more bytes than 64 bits can count");
  }
  return blocks * info.block_bytes;
}

Status Dequantize(WeightType type, const std::byte* src, int64_t values, float* out) {
  const WeightTypeInfo& info = InfoOf(type);
  if (!info.decodable) {
    return Status::Unsupported("weights of type " + std::string(info.name) + " cannot be decoded");
  }
  KVANT_RETURN_IF_ERROR(CheckBlocks(info, values));
  if (type == WeightType::kF32) {
    if (values > 0) std::memcpy(out, src, static_cast<size_t>(values) * sizeof(float));
  } else if (type == WeightType::kF16) {
    ConvertHalves(src, values, F16ToF32, out);
  } else if (type == WeightType::kBF16) {
    ConvertHalves(src, values, Bf16ToF32, out);
  } else {
    DequantizeBlocks(type, src, values, out);
  }
  return Status::Ok();
}

Status UnpackGroups(WeightType type, const std::byte* src, int64_t values, uint8_t* codes,
                    float* scales, float* offsets) {
  const WeightTypeInfo& info = InfoOf(type);
  const BlockUnpacker unpack = UnpackerOf(type);
  if (unpack == nullptr) {
    return Status::Unsupported("weights of type " + std::string(info.name) +
                               " have no integer form");
  }
  KVANT_RETURN_IF_ERROR(CheckBlocks(info, values));
  assert(offsets != nullptr || !GroupTraitsOf(type).has_offset);
  const int groups = info.block_values / GroupTraitsOf(type).group;
  float unused_offsets[kMaxBlockGroups];
  for (int64_t done = 0; done < values; done += info.block_values) {
    unpack(src, codes + done, scales, offsets != nullptr ? offsets : unused_offsets);
    src += info.block_bytes;
    scales += groups;
    if (offsets != nullptr) offsets += groups;
  }
  return Status::Ok();
}

}  // namespace kvant
