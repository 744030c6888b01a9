#include "format/page_layout.h"

#include <algorithm>

namespace kvant {
namespace {

// The layout is a file format: these figures must never move.
static_assert(PlaneBytes(4, 64, 64) == 2048);
static_assert(PlaneBytes(2, 64, 64) == 1024 && PlaneBytes(1, 64, 64) == 512);
static_assert(PlaneBytes(8, 64, 80) == 5120 && PlaneBytes(1, 64, 80) == 768);
static_assert(PlaceOf(4, 64, 64, 0, 4).byte == 0 && PlaceOf(4, 64, 64, 0, 4).shift == 4);
static_assert(PlaceOf(4, 64, 64, 17, 9).byte == 256 + 64 + 4 + 1);
static_assert(PlaceOf(1, 64, 64, 0, 16).byte == 0 && PlaceOf(1, 64, 64, 0, 16).shift == 4);
static_assert(PlaceOf(8, 80, 64, 64, 0).byte == 4096);

int RoundUpTo(int bytes, int unit) { return DivideUp(bytes, unit) * unit; }

// offset: where the side begins in its page; V's metadata is filled up so that its codes begin on a
// line of the page.
void PlaceNormed(int offset, SideLayout* s) {
  const int codes = s->blocks() * s->block_bytes;
  const int norms = s->tokens * s->format.metadata_bytes_per_group();
  const int mean = s->format.page_mean ? s->blocks() * s->padded_dim : 0;
  const int parameters = s->blocks() * s->parameter_count() * 2;
  if (s->side == Side::kK) {
    s->norms_offset = codes;
    s->mean_offset = s->norms_offset + norms;
    s->parameters_offset = s->mean_offset + mean;
    s->bytes = RoundUpTo(s->parameters_offset + parameters, 16);
    s->metadata_bytes = s->bytes - codes;
    return;
  }
  s->codes_offset = RoundUpTo(offset + parameters + norms, kPlaneUnitBytes) - offset;
  s->norms_offset = s->codes_offset - norms;
  s->metadata_bytes = s->codes_offset;
  s->bytes = s->codes_offset + codes;
}

void PlaceBand(SideLayout* s) {
  const bool by_channel = s->format.axis == Axis::kChannel;
  s->band_offset = s->metadata_bytes;
  s->band_rows = by_channel ? s->token_groups : s->blocks();
  s->band_width = by_channel ? s->padded_dim : s->block_tokens;
  s->deltas_from_places = s->band_rows * s->format.outliers * s->band_width * 2;
  s->metadata_bytes += 2 * s->deltas_from_places;
}

SideLayout MakeSide(const Format& format, Side side, int head_dim, int tokens, int offset) {
  SideLayout s;
  s.format = format;
  s.side = side;
  s.head_dim = head_dim;
  s.padded_dim = PaddedDim(head_dim);
  s.tokens = tokens;
  s.block_tokens = std::min(tokens, kPageTokens);
  if (format.is_float() || format.is_float8()) {
    const int width = side == Side::kK ? head_dim : s.padded_dim;
    s.block_bytes = s.block_tokens * width * format.bits / 8;
  } else {
    const Planes planes = PlanesOf(format);
    for (size_t i = 0; i < planes.size(); ++i) {
      if (planes[i].bits == 0) continue;
      s.plane_bytes[i] = PlaneBytes(planes[i].bits, s.lanes(), s.reduce());
      s.block_bytes += s.plane_bytes[i];
    }
  }
  if (format.is_float()) {
    s.bytes = RoundUpTo(s.blocks() * s.block_bytes, kPlaneUnitBytes);
    return s;
  }
  const int per_group = format.metadata_bytes_per_group();
  if (format.is_normed()) {
    s.group = head_dim;
    s.channel_groups = 1;
    PlaceNormed(offset, &s);
    return s;
  }
  s.scale_bytes = format.scale == Scale::kF16 ? 2 : 1;
  if (format.axis == Axis::kChannel) {
    s.group = format.group;
    s.token_groups = tokens / s.group;
    s.offsets_from_scales = s.token_groups * s.padded_dim * 2;
    s.metadata_bytes = s.token_groups * s.padded_dim * per_group;
  } else {
    s.group = format.group == 0 ? head_dim : std::min(format.group, head_dim);
    s.channel_groups = DivideUp(head_dim, s.group);
    s.offsets_from_scales = s.channel_groups * s.block_tokens * s.scale_bytes;
    s.block_metadata_bytes = s.channel_groups * s.block_tokens * per_group;
    s.metadata_bytes = s.block_metadata_bytes * s.blocks();
  }
  if (format.outliers > 0) PlaceBand(&s);
  s.metadata_bytes = RoundUpTo(s.metadata_bytes, kPlaneUnitBytes);
  s.codes_offset = s.metadata_bytes;
  s.bytes = s.metadata_bytes + s.blocks() * s.block_bytes;
  return s;
}

}  // namespace

int64_t SideLayout::code_bytes() const {
  return static_cast<int64_t>(tokens) * head_dim * format.bits / 8;
}

int64_t SideLayout::used_metadata_bytes() const {
  if (format.is_normed()) {
    return static_cast<int64_t>(tokens) * format.metadata_bytes_per_group() +
           static_cast<int64_t>(blocks()) *
               ((format.page_mean ? head_dim : 0) + parameter_count() * 2);
  }
  const int64_t groups = format.axis == Axis::kChannel
                             ? static_cast<int64_t>(token_groups) * head_dim
                             : static_cast<int64_t>(channel_groups) * tokens;
  const int64_t vectors = format.axis == Axis::kChannel ? groups : tokens;
  return groups * format.metadata_bytes_per_group() + vectors * format.outliers * 4;
}

int PageTokensFor(const Format& k, const Format& v) {
  int tokens = kPageTokens;
  for (const Format& f : {k, v}) {
    if (!f.is_float() && f.axis == Axis::kChannel) tokens = std::max(tokens, f.group);
  }
  return tokens;
}

PageLayout MakePageLayout(const Format& k, const Format& v, HeadChannels channels,
                          int page_tokens) {
  PageLayout layout;
  layout.k = MakeSide(k, Side::kK, channels.k, page_tokens, 0);
  // A normed V makes use of the line in which a normed K ends.
  layout.v_offset_bytes =
      v.is_normed() ? layout.k.bytes : RoundUpTo(layout.k.bytes, kPlaneUnitBytes);
  layout.k.bytes = layout.v_offset_bytes;
  layout.v = MakeSide(v, Side::kV, channels.v, page_tokens, layout.v_offset_bytes);
  layout.tokens = page_tokens;
  layout.page_bytes = layout.v_offset_bytes + layout.v.bytes;
  return layout;
}

FormatPair OpenFormats(const FormatPair& stored) {
  return {stored.k.is_float() ? stored.k : kFormatF16, stored.v.is_float() ? stored.v : kFormatF16};
}

}  // namespace kvant
