// One code of a coded side: how the scalar codecs read and write it, plane by plane.
#pragma once

#include <cstddef>

#include "format/page_layout.h"

namespace kvant {

// REQUIRES: the code's bits are 0.
void StoreCode(const SideLayout& layout, std::byte* stored, int token, int channel, int code);
int LoadCode(const SideLayout& layout, const std::byte* stored, int token, int channel);

}  // namespace kvant
