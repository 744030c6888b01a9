// The tensor types of a GGUF file: names, sizes, and decoders for those that kvant computes with.
//
// A quantised type stores blocks of `block_values` values in `block_bytes` bytes. Inside a block,
// every group of values shares a scale (and in some types an offset):
//     value = scale * (code - zero) + offset
// with codes of 0 .. 2^bits - 1. UnpackGroups gives that integer form, Dequantize the values.
// Sources need no alignment. Thread rules: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kvant/status.h"

namespace kvant {

// The numbers are those of the file. Types that are sized but not decodable can be listed, never
// computed with. Q8_1 and Q8_K (9 and 15) exist only at run time and are refused in a file.
enum class WeightType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
};

inline constexpr int kMaxTensorDims = 4;

struct WeightTypeInfo {
  WeightType type;
  std::string_view name;  // "Q4_K"
  int block_values;       // 1 for plain numbers
  int block_bytes;
  bool decodable;  // Dequantize takes it
};

// Null when no type has that number.
const WeightTypeInfo* FindWeightType(uint32_t number);

// REQUIRES: a type that FindWeightType knows.
const WeightTypeInfo& InfoOf(WeightType type);

// The bytes of a tensor of `dims` (1 to 4 of them, row length first). kCorrupt when a dimension is
// not positive, the element count or byte count overflows int64, or the row is not whole blocks.
// The message completes the sentence "tensor 'x' ...".
Result<int64_t> TensorBytes(WeightType type, std::span<const int64_t> dims);

// The integer form of a type; group is 0 for types that have none (floats, undecodable types).
struct GroupTraits {
  int group = 0;            // values that share one scale: 32, or 16 for Q6_K
  int bits = 0;             // 4, 5, 6 or 8
  int zero = 0;             // subtracted from the code before scaling
  bool has_offset = false;  // whether offsets can differ from 0
};

constexpr GroupTraits GroupTraitsOf(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0:
      return {32, 4, 8, false};
    case WeightType::kQ4_1:
      return {32, 4, 0, true};
    case WeightType::kQ5_0:
      return {32, 5, 16, false};
    case WeightType::kQ5_1:
      return {32, 5, 0, true};
    case WeightType::kQ8_0:
      return {32, 8, 128, false};
    case WeightType::kQ4_K:
      return {32, 4, 0, true};
    case WeightType::kQ5_K:
      return {32, 5, 0, true};
    case WeightType::kQ6_K:
      return {16, 6, 32, false};
    default:
      return {};
  }
}

// Decodes `values` values at src to out[values], every one the f32 result of the type's published
// formula. kUnsupported names a type that is not decodable; kInvalidArgument a count that is
// negative or not whole blocks. Nothing is written on error.
// REQUIRES: src holds values / block_values * block_bytes bytes.
Status Dequantize(WeightType type, const std::byte* src, int64_t values, float* out);

// Splits `values` values at src into codes[values], scales[values / group] and
// offsets[values / group], in the order of the values. offsets may be null where the type has no
// offset; given, they are then filled with 0. kUnsupported names a type without an integer form;
// kInvalidArgument a count that is negative or not whole blocks. Nothing is written on error.
Status UnpackGroups(WeightType type, const std::byte* src, int64_t values, uint8_t* codes,
                    float* scales, float* offsets);

}  // namespace kvant
