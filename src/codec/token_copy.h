// CopyToken: one token of a page put into another place, bit for bit what it was.
//
// Thread rules: a pure function on the caller's bytes.
#pragma once

#include <cstddef>

#include "format/page_layout.h"

namespace kvant {

// Writes what `from` holds of token `from_token` over token `to_token` of `to`: values or codes,
// with the scale and the offset of before, so nothing is rounded again. Both are whole sides of
// this layout and may be the same. REQUIRES: layout.format.by_token().
void CopyToken(const SideLayout& layout, const std::byte* from, int from_token, std::byte* to,
               int to_token);
// The same for both sides of a page.
void CopyToken(const PageLayout& layout, const std::byte* from, int from_token, std::byte* to,
               int to_token);

}  // namespace kvant
