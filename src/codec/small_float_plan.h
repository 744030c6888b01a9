// SmallFloatPlan: one FP8 or FP4 side as the vector encoders take it. Lanes and rows as in
// side_plan.h; what is coded is told in small_float.h. Bytes are those of the reference.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/side_plan.h"
#include "kvant/format.h"

namespace kvant {

struct SmallFloatPlan : SideShape {
  Levels levels = Levels::kE2M1;
  Scale scale = Scale::kF16;
  bool is_float8 = false;          // a byte a value, laid out like a float side
  int64_t source_block_bytes = 0;  // of the open f16 side
  int block_tokens = 0;
  int head_dim = 0;
  int group = 0;  // channels; the last may be short
  int groups = 0;
  int scale_bytes = 0;
  int block_metadata_bytes = 0;
};

// Encodes a side whose bytes are all 0.
using EncodeSmallFloatFn = void (*)(const SmallFloatPlan& plan, const std::byte* source,
                                    int first_token, std::byte* stored);
void EncodeSmallFloatAvx2(const SmallFloatPlan& plan, const std::byte* source, int first_token,
                          std::byte* stored);
void EncodeSmallFloatAvx512(const SmallFloatPlan& plan, const std::byte* source, int first_token,
                            std::byte* stored);
void EncodeSmallFloatNeon(const SmallFloatPlan& plan, const std::byte* source, int first_token,
                          std::byte* stored);

}  // namespace kvant
