// Where one code or one float value of a side lies: how the scalar codecs read and write it.
#pragma once

#include <cstddef>

#include "format/page_layout.h"

namespace kvant {

// Of a value of a float or FP8 side: its index among the values of its block.
int IndexInBlock(const SideLayout& layout, int token, int channel);

// Axis token: where a scale lies, in bytes from the start of the side.
int ScaleByte(const SideLayout& layout, int token, int channel_group);

// REQUIRES: the code's bits are 0.
void StoreCode(const SideLayout& layout, std::byte* stored, int token, int channel, int code);
// The same over a code that is there.
void ReplaceCode(const SideLayout& layout, std::byte* stored, int token, int channel, int code);
int LoadCode(const SideLayout& layout, const std::byte* stored, int token, int channel);

}  // namespace kvant
