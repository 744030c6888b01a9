// Demotion of nested formats (nest4, nest3, nest2): a page in fewer bits without decoding it.
//
// A block's codes begin with the planes of their upper bits, and neither norms nor means depend on
// the width, so a narrower side is a copy with planes left out: the bytes that the encoder would
// have written at that width. Thread rules: pure functions on the caller's memory.
#pragma once

#include <cstddef>

#include "format/page_layout.h"

namespace kvant {

// Whether sides of `from` can become sides of `to`: the same nested format in as many bits or less.
bool CanDemote(const Format& from, const Format& to);

// Writes all of demoted [to.bytes].
// REQUIRES: CanDemote(from.format, to.format), and layouts of the same side, head and tokens.
void DemoteSide(const SideLayout& from, const std::byte* stored, const SideLayout& to,
                std::byte* demoted);

}  // namespace kvant
