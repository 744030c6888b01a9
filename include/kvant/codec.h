// Codes arrays without a cache: what Python, `explain` and tests of other engines use. The bytes
// are those that a cache stores, page after page of one side of one KV head.
//
// Values pass through the type in which the cache's open pages hold them, so that an array and a
// cache give the same bytes: f16 for every coded format, a float format's own type otherwise. They
// are rounded to nearest even first; the scale and the codes follow from the rounded values.
//
// Values of rotated formats (tq, nest, tc, tcx, `had`, `rot`) are coded as they are given; a cache
// rotates them first. So are those of formats with `prerope`: an array has no positions, what is
// given is taken for K before RoPE.
//
// Thread rules: pure functions on the caller's memory. Nothing is written when a call fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvant/format.h"
#include "kvant/status.h"

namespace kvant {

// Tokens of one page of an array: 64, or the group of a longer channel group. Arrays hold whole
// pages only.
int ArrayPageTokens(const Format& format);

// Bytes of `tokens` encoded tokens, metadata and padding included. kInvalidArgument names a format
// or head_dim that is not possible, or a token count that is not a positive number of whole pages.
Result<int64_t> EncodedArrayBytes(const Format& format, Side side, int64_t tokens, int head_dim);

// Encodes values [tokens][head_dim] into encoded [EncodedArrayBytes()]. kInvalidArgument also where
// a buffer has another size, or a value is NaN, infinite or outside the range of the open type
// (+-65504 for coded formats): the sentence names the token and the channel.
Status EncodeArray(const Format& format, Side side, std::span<const float> values, int64_t tokens,
                   int head_dim, std::span<std::byte> encoded);

// Decodes what EncodeArray wrote. Bytes of another origin decode to some values, possibly not
// finite; nothing outside the buffers is touched.
Status DecodeArray(const Format& format, Side side, std::span<const std::byte> encoded,
                   int64_t tokens, int head_dim, std::span<float> values);

// Turns an array of a nested format (nest4, nest3) into one of `bits` bits without decoding it:
// demoted [EncodedArrayBytes() of that width] gets the bytes that EncodeArray would have written.
// kInvalidArgument for other formats, for more bits than the array has, and where a buffer has
// another size.
Status DemoteArray(const Format& format, Side side, std::span<const std::byte> encoded,
                   int64_t tokens, int head_dim, int bits, std::span<std::byte> demoted);

// The codes and scales of FP8 and FP4 arrays in the order in which others exchange them, bit for
// bit the same elements and scales as in `encoded`:
//   codes   [tokens][head_dim] bytes of FP8; [tokens][head_dim / 2] of FP4, the even channel in the
//           low nibble
//   scales  [tokens][groups along the head]: f16 of FP8, one group; a byte of FP4
struct PublishedBytes {
  int64_t codes = 0;
  int64_t scales = 0;
};
// kInvalidArgument as EncodedArrayBytes, and for formats that are neither FP8 nor FP4.
Result<PublishedBytes> PublishedArrayBytes(const Format& format, Side side, int64_t tokens,
                                           int head_dim);
// kInvalidArgument also where a buffer has another size. Import takes any bytes: what DecodeArray
// makes of them is for the caller to judge.
Status ExportPublished(const Format& format, Side side, std::span<const std::byte> encoded,
                       int64_t tokens, int head_dim, std::span<std::byte> codes,
                       std::span<std::byte> scales);
Status ImportPublished(const Format& format, Side side, std::span<const std::byte> codes,
                       std::span<const std::byte> scales, int64_t tokens, int head_dim,
                       std::span<std::byte> encoded);

// One group on its own, step by step.
struct CodedGroup {
  // As stored, f16; of FP4 formats E8M0 or E4M3, of if4 negative where codes are whole numbers.
  float scale = 0;
  float zero = 0;          // as stored: min, integer zero or real zero; 0 for symmetric conventions
  std::vector<int> codes;  // of FP8 and FP4 formats the standard's bytes and nibbles
  std::vector<float> decoded;
};

// Codes 1 to 1024 values as one group of a coded format, whatever its axis and group size.
// kInvalidArgument for a float or a normed format or one with a side-band, and for a value as in
// EncodeArray.
Result<CodedGroup> EncodeGroup(const Format& format, std::span<const float> values);

}  // namespace kvant
