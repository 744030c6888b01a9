#include "codec/code_place.h"

namespace kvant {
namespace {

// Visits the (byte, shift, plane width) of every plane that holds part of a code.
template <typename Visit>
void ForEachPlane(const SideLayout& s, int token, int channel, const Visit& visit) {
  if (s.format.is_float8()) {
    visit(s.codes_offset + token / s.block_tokens * s.block_bytes + IndexInBlock(s, token, channel),
          0, 8, 0);
    return;
  }
  const int block = token / s.block_tokens, row = token % s.block_tokens;
  const int lane = s.side == Side::kK ? row : channel;
  const int element = s.side == Side::kK ? channel : row;
  int base = s.codes_offset + block * s.block_bytes;
  const Planes planes = PlanesOf(s.format);
  for (size_t i = 0; i < planes.size() && planes[i].bits != 0; ++i) {
    const CodePlace place = PlaceOf(planes[i].bits, s.lanes(), s.reduce(), lane, element);
    visit(base + place.byte, place.shift, planes[i].bits, planes[i].first_bit);
    base += s.plane_bytes[i];
  }
}

}  // namespace

int IndexInBlock(const SideLayout& s, int token, int channel) {
  const int row = token % s.block_tokens;
  return s.side == Side::kK ? channel * s.block_tokens + row : row * s.padded_dim + channel;
}

int ScaleByte(const SideLayout& s, int token, int channel_group) {
  return token / s.block_tokens * s.block_metadata_bytes +
         (channel_group * s.block_tokens + token % s.block_tokens) * s.scale_bytes;
}

void StoreCode(const SideLayout& s, std::byte* stored, int token, int channel, int code) {
  ForEachPlane(s, token, channel, [&](int byte, int shift, int bits, int from) {
    const int part = (code >> from) & ((1 << bits) - 1);
    stored[byte] |= static_cast<std::byte>(part << shift);
  });
}

void ReplaceCode(const SideLayout& s, std::byte* stored, int token, int channel, int code) {
  ForEachPlane(s, token, channel, [&](int byte, int shift, int bits, int) {
    stored[byte] &= static_cast<std::byte>(~(((1 << bits) - 1) << shift));
  });
  StoreCode(s, stored, token, channel, code);
}

int LoadCode(const SideLayout& s, const std::byte* stored, int token, int channel) {
  int code = 0;
  ForEachPlane(s, token, channel, [&](int byte, int shift, int bits, int from) {
    code |= ((static_cast<int>(stored[byte]) >> shift) & ((1 << bits) - 1)) << from;
  });
  return code;
}

}  // namespace kvant
