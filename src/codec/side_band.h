// The side-band: values that stay out of the ranges of their groups (Format::outliers; KVQuant,
// arXiv 2401.18079). Encoding takes three steps: pick, code all values with ranges of the rest,
// then store what the codes of the picked ones lack. Scalar: the same bytes at every level.
//
// Picked are the values of a vector that lie farthest from its mean, the first of equals; a value
// that equals the mean never is, and one value of a vector always stays.
//
// All of them do nothing for sides without a side-band. Thread rules: pure functions on the
// caller's bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/page_layout.h"

namespace kvant {

// Writes places and values of what is picked; slots that are not needed hold place 0xffff until
// FinishOutliers. Parameters as in EncodeSide.
void PickOutliers(const SideLayout& open, const std::byte* source, const SideLayout& layout,
                  int first_token, std::byte* stored);
// Whether a value was picked; before FinishOutliers.
bool IsPicked(const SideLayout& layout, const std::byte* stored, int token, int channel);
// Values become deltas to the codes. A delta beyond f16 saturates: only where the values of a
// vector span more than f16 does.
void FinishOutliers(const SideLayout& layout, std::byte* stored);

// out += deltas, [tokens][head_dim] as in DecodeSide. Places outside the page are left out.
void AddOutliers(const SideLayout& layout, const std::byte* stored, float* out, int64_t out_stride);

}  // namespace kvant
