// The normed formats (tq, tc): how a side is told to its encoders, and how it is read back. The
// method: normed_plan.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/normed_plan.h"
#include "format/page_layout.h"

namespace kvant {

// Encodes a normed side of one page at the active level; EncodeSide of codec.h for these formats.
void EncodeNormedSide(const SideLayout& open, const std::byte* source, const SideLayout& layout,
                      int first_token, std::byte* stored);
// The same at the scalar level.
void EncodeNormedSideScalar(const SideLayout& open, const std::byte* source,
                            const SideLayout& layout, int first_token, std::byte* stored);
// Scalar, and independent of how encoder and kernels find the window of an element.
void DecodeNormedSide(const SideLayout& layout, const std::byte* stored, float* out,
                      int64_t out_stride);

}  // namespace kvant
