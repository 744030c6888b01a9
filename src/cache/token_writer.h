// Writes tokens into the float side of an open page and finds values that its type cannot hold.
//
// Thread rules: pure functions on the caller's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "format/page_layout.h"

namespace kvant {

struct Unstorable {
  int64_t token;
  int channel;
  float value;
};

// The first value of rows [tokens][head_dim] that is NaN, infinite or rounds to an infinity.
std::optional<Unstorable> FindUnstorable(FloatType type, const float* rows, int64_t stride,
                                         int64_t tokens, int head_dim);

// Writes rows [tokens][head_dim] as tokens first_token .. first_token + tokens - 1 of the page.
// Padding channels of V are written as 0, so that a full page has the same bytes on every path.
// REQUIRES: FindUnstorable() finds nothing; first_token + tokens <= side.tokens.
void WriteTokens(const SideLayout& side, std::byte* page_side, int first_token, int tokens,
                 const float* rows, int64_t stride);

// f32 -> f16, round to nearest even, at each level; n is any count.
void NarrowF16Scalar(const float* from, int n, uint16_t* to);
void NarrowF16Avx2(const float* from, int n, uint16_t* to);
void NarrowF16Neon(const float* from, int n, uint16_t* to);

}  // namespace kvant
