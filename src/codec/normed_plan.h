// NormedPlan: one normed side (tq, tc) as the encoders take it. Lanes and rows as in side_plan.h:
// the fast axis of the open side is the lanes (tokens for K, channels for V).
//
// How a vector x of D channels is coded (TurboQuant, arXiv 2504.19874, with the norm rule; x is
// rotated already):
//   r = x - mean of the page (page_mean), z = r * sigma * sqrt(D) / |r|
//   codes: z to levels; Lloyd-Max the nearest, trellis the path of least square error
//   x ~ mean + norm / sigma * level, with
//   K: norm = |r| * sigma / |levels|, so that the decoded vector is as long as r
//   V: norm = |r|^2 * sigma / (r . levels), so that its product with r is |r|^2: what many tokens
//   add up to is then as long as it was, and their errors are at right angles to them
// Trellis: the chain of a lane runs through all rows of a block in the order byte by byte, element
// 16 * step + 4 * quad + byte: next quad, then next step, then next byte. So the window of an
// element lies in the bits that follow its own in the same byte, or in the byte of the next unit,
// and a kernel reads it with one shift. After the last element come zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/level_tables.h"
#include "codec/side_plan.h"
#include "kvant/format.h"

namespace kvant {

struct NormedPlan : SideShape {
  FloatType source_type = FloatType::kF16;
  int64_t source_block_bytes = 0;
  int block_tokens = 0;
  int head_dim = 0;
  int padded_dim = 0;
  LevelTable table;
  bool page_mean = false;
  bool norms_8bit = false;
  int norms_offset = 0, mean_offset = 0, parameters_offset = 0;
  int parameter_count = 0;
};

// Encodes a side: the same bytes at every level. What the scalar level calls the reference is the
// same text compiled for any CPU; the tests hold it against formulas of their own.
using EncodeNormedFn = void (*)(const NormedPlan& plan, const std::byte* source, int first_token,
                                std::byte* stored);
void EncodeNormedScalar(const NormedPlan& plan, const std::byte* source, int first_token,
                        std::byte* stored);
void EncodeNormedAvx2(const NormedPlan& plan, const std::byte* source, int first_token,
                      std::byte* stored);
void EncodeNormedAvx512(const NormedPlan& plan, const std::byte* source, int first_token,
                        std::byte* stored);
void EncodeNormedNeon(const NormedPlan& plan, const std::byte* source, int first_token,
                      std::byte* stored);

}  // namespace kvant
