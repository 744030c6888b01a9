#include "codec/token_copy.h"

#include <cstring>

#include "codec/code_place.h"

namespace kvant {
namespace {

// From where to where, of the token at hand.
struct Ends {
  const std::byte* from;
  int from_token;
  std::byte* to;
  int to_token;
};

// `bytes` at the place that `byte_of(token)` names.
template <typename ByteOf>
void CopyBytes(const Ends& ends, int bytes, const ByteOf& byte_of) {
  std::memmove(ends.to + byte_of(ends.to_token), ends.from + byte_of(ends.from_token),
               static_cast<size_t>(bytes));
}

// Floats and FP8: whole bytes, padding channels of V included.
void CopyValues(const SideLayout& s, const Ends& ends) {
  const int value_bytes = s.format.bits / 8;
  const int channels = s.side == Side::kK ? s.head_dim : s.padded_dim;
  for (int c = 0; c < channels; ++c) {
    CopyBytes(ends, value_bytes, [&](int token) {
      return s.codes_offset + token / s.block_tokens * s.block_bytes +
             IndexInBlock(s, token, c) * value_bytes;
    });
  }
}

void CopyCodes(const SideLayout& s, const Ends& ends) {
  for (int c = 0; c < s.head_dim; ++c) {
    const int code = LoadCode(s, ends.from, ends.from_token, c);
    ReplaceCode(s, ends.to, ends.to_token, c, code);
  }
}

void CopyScales(const SideLayout& s, const Ends& ends) {
  const bool has_offset = s.format.metadata_bytes_per_group() == 4;
  for (int group = 0; group < s.channel_groups; ++group) {
    CopyBytes(ends, s.scale_bytes, [&](int token) { return ScaleByte(s, token, group); });
    if (!has_offset) continue;
    CopyBytes(ends, 2,
              [&](int token) { return ScaleByte(s, token, group) + s.offsets_from_scales; });
  }
}

void CopyNorm(const SideLayout& s, const Ends& ends) {
  const int bytes = s.format.metadata_bytes_per_group();
  CopyBytes(ends, bytes, [&](int token) { return s.norms_offset + token * bytes; });
}

void CopyBand(const SideLayout& s, const Ends& ends) {
  for (int slot = 0; slot < s.format.outliers; ++slot) {
    const auto place = [&](int token) {
      const int row = token / s.block_tokens * s.format.outliers + slot;
      return s.band_offset + (row * s.band_width + token % s.block_tokens) * 2;
    };
    CopyBytes(ends, 2, place);
    CopyBytes(ends, 2, [&](int token) { return place(token) + s.deltas_from_places; });
  }
}

}  // namespace

void CopyToken(const SideLayout& s, const std::byte* from, int from_token, std::byte* to,
               int to_token) {
  const Ends ends{from, from_token, to, to_token};
  if (s.format.is_float() || s.format.is_float8()) {
    CopyValues(s, ends);
  } else {
    CopyCodes(s, ends);
  }
  if (s.format.is_float()) return;
  if (s.format.is_normed()) {
    CopyNorm(s, ends);
  } else {
    CopyScales(s, ends);
    CopyBand(s, ends);
  }
}

void CopyToken(const PageLayout& layout, const std::byte* from, int from_token, std::byte* to,
               int to_token) {
  CopyToken(layout.k, from, from_token, to, to_token);
  CopyToken(layout.v, from + layout.v_offset_bytes, from_token, to + layout.v_offset_bytes,
            to_token);
}

}  // namespace kvant
