// Codec: turns an open page (float sides) into a stored page and back. Bit-exact: every ISA level
// writes the same bytes, because each value is coded as
//   code = clamp(rint((x - offset) / scale))   in f32, with the scale and offset as *stored* (f16),
// a true division and round half to even, and nothing is fused (-ffp-contract=off).
//
// Constant groups decode exactly. Values are finite numbers that the cache has checked.
// Thread rules: pure functions on the caller's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/iq4_nl.h"
#include "format/page_layout.h"

namespace kvant {

// Codes one side of a page at the active ISA level.
//   source   the same side in the `open` layout: float, of at least as many tokens. f16 is
//            fast, other types take the reference. Padding in it may hold anything.
//   first_token  tokens before it belong to the sinks: they stay out of every range, their codes
//                and (axis token) their scales are written as 0. Float sides keep them.
//   stored   [layout.bytes], written whole, padding as 0
void EncodeSide(const SideLayout& open, const std::byte* source, const SideLayout& layout,
                int first_token, std::byte* stored);

// Decodes one side of a stored page, float or coded, to f32. Every level gives the same bits.
//   out  [tokens][head_dim], row stride `out_stride` values; nothing else is written
void DecodeSide(const SideLayout& layout, const std::byte* stored, float* out, int64_t out_stride);

// The scalar reference: readable, in the order of the formulas. What the levels are tested against.
void EncodeSideReference(const SideLayout& open, const std::byte* source, const SideLayout& layout,
                         int first_token, std::byte* stored);
void DecodeSideReference(const SideLayout& layout, const std::byte* stored, float* out,
                         int64_t out_stride);

// What the code of a uniform side says of token t, channel c, without the side-band.
float CodedValue(const SideLayout& layout, const std::byte* stored, int token, int channel);

// Reads one value of a float side: token t of the page, channel c.
float LoadFloatValue(const SideLayout& layout, const std::byte* side, int token, int channel);
// Writes one value of a float side, rounded to its type; the caller has checked the range.
void StoreFloatValue(const SideLayout& layout, std::byte* side, int token, int channel,
                     float value);

inline constexpr size_t kMaxGroupValues = 1024;  // channels of the largest head

// One group on its own: what `explain --group` shows and the codecs use.
struct GroupParameters {
  float scale = 0;           // as stored
  float offset = 0;          // decode: x ~ scale * code + offset, in f32
  uint16_t scale_bits = 0;   // f16
  uint16_t offset_bits = 0;  // f16 min or zeta, int16 z; 0 for symmetric conventions
};
// min, max over the group; extreme: the value of largest magnitude, the first of equals, signed.
// REQUIRES: finite and within f16's range, +-65504; no scale or offset overflows then.
GroupParameters FitGroup(const Format& format, float min, float max, float extreme);
// The same from the values themselves, in their order and as few as none; heeds clip_percent.
// REQUIRES: at most kMaxGroupValues.
GroupParameters FitValues(const Format& format, std::span<const float> values);
// Scale and offset as a decoder sees them.
GroupParameters UnpackParameters(const Format& format, uint16_t scale_bits, uint16_t offset_bits);
// Code of one value under fitted parameters; 0 .. 2^bits - 1.
int CodeOf(const Format& format, const GroupParameters& p, float value);
// Value of a code.
float ValueOf(const Format& format, const GroupParameters& p, int code);

}  // namespace kvant
