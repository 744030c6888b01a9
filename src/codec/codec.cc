// Chooses the level: float sides and the scalar level take the reference, coded sides a vector one.
#include "codec/codec.h"

#include <cstring>

#include "codec/codec_level.h"
#include "codec/normed_codec.h"
#include "codec/side_band.h"

namespace kvant {
namespace {

void PlanGroups(const SideLayout& s, SidePlan* plan) {
  const bool channel_axis = s.format.axis == Axis::kChannel;
  plan->along_lanes = channel_axis == plan->lanes_are_tokens;
  plan->offsets_from_scales = s.offsets_from_scales;
  plan->group_blocks = 1;
  if (!channel_axis) {
    plan->groups_per_block = s.channel_groups;
    plan->group_extent = s.group;
    plan->group_bytes = s.block_tokens * 2;
    plan->group_blocks_bytes = s.block_metadata_bytes;
  } else if (s.group < s.block_tokens) {
    plan->groups_per_block = s.block_tokens / s.group;
    plan->group_extent = s.group;
    plan->group_bytes = s.padded_dim * 2;
    plan->group_blocks_bytes = plan->groups_per_block * plan->group_bytes;
  } else {
    plan->groups_per_block = 1;
    plan->group_extent = s.block_tokens;
    plan->group_blocks = s.group / s.block_tokens;
    plan->group_bytes = plan->group_blocks_bytes = s.padded_dim * 2;
  }
}

SidePlan MakeSidePlan(const SideLayout& s) {
  SidePlan plan;
  static_cast<SideShape&>(plan) = ShapeOf(s);
  plan.source_block_bytes = static_cast<int64_t>(plan.rows) * plan.lanes * 2;
  plan.is_codebook = s.format.levels == Levels::kCodebook;
  plan.offset = s.format.offset;
  plan.has_offset = s.format.metadata_bytes_per_group() == 4;
  plan.last_code = static_cast<float>((1 << s.format.bits) - 1);
  plan.centre = static_cast<float>(1 << (s.format.bits - 1));
  PlanGroups(s, &plan);
  return plan;
}

SmallFloatPlan MakeSmallFloatPlan(const SideLayout& open, const SideLayout& s) {
  SmallFloatPlan plan;
  static_cast<SideShape&>(plan) = ShapeOf(s);
  plan.levels = s.format.levels;
  plan.scale = s.format.scale;
  plan.is_float8 = s.format.is_float8();
  plan.source_block_bytes = open.block_bytes;
  plan.block_tokens = s.block_tokens;
  plan.head_dim = s.head_dim;
  plan.group = s.group;
  plan.groups = s.channel_groups;
  plan.scale_bytes = s.scale_bytes;
  plan.block_metadata_bytes = s.block_metadata_bytes;
  return plan;
}

// The others take the reference, or a codec of their own.
bool HasVectorLevels(const Format& format) {
  return format.levels == Levels::kUniform || format.levels == Levels::kCodebook;
}

}  // namespace

SideShape ShapeOf(const SideLayout& s) {
  SideShape shape;
  shape.blocks = s.blocks();
  shape.lanes_are_tokens = s.side == Side::kK;
  shape.rows = shape.lanes_are_tokens ? s.head_dim : s.block_tokens;
  shape.lanes = s.lanes();
  shape.used_lanes = shape.lanes_are_tokens ? s.block_tokens : s.head_dim;
  shape.steps = s.reduce() / kStep;
  shape.codes_offset = s.codes_offset;
  shape.block_bytes = s.block_bytes;
  static_assert(kMaxSidePlanes == kMaxPlanes);
  const Planes planes = PlanesOf(s.format);
  int offset = 0;
  for (size_t i = 0; i < planes.size() && planes[i].bits != 0; ++i) {
    shape.planes[i] = {planes[i].bits, planes[i].first_bit, offset,
                       PlaneBytes(planes[i].bits, kLaneBlock, s.reduce())};
    offset += s.plane_bytes[i];
  }
  return shape;
}

void EncodeSide(const SideLayout& open, const std::byte* source, const SideLayout& layout,
                int first_token, std::byte* stored) {
  if (layout.format.is_normed()) {
    EncodeNormedSide(open, source, layout, first_token, stored);
    return;
  }
  if (layout.format.is_small_float() && open.format == kFormatF16 &&
      ActiveCodecLevel().encode_small_float != nullptr) {
    std::memset(stored, 0, static_cast<size_t>(layout.bytes));
    ActiveCodecLevel().encode_small_float(MakeSmallFloatPlan(open, layout), source, first_token,
                                          stored);
    return;
  }
  const Format& format = layout.format;
  const bool is_vectorised = HasVectorLevels(format) && format.outliers == 0 &&
                             format.clip_percent == 0 && open.format == kFormatF16;
  const EncodeCodedFn encode = is_vectorised ? ActiveCodecLevel().encode : nullptr;
  if (encode == nullptr) {
    EncodeSideReference(open, source, layout, first_token, stored);
  } else {
    encode(MakeSidePlan(layout), source, first_token, stored);
  }
}

void DecodeSide(const SideLayout& layout, const std::byte* stored, float* out, int64_t out_stride) {
  const bool is_vectorised = HasVectorLevels(layout.format);
  const DecodeCodedFn decode = is_vectorised ? ActiveCodecLevel().decode : nullptr;
  if (decode == nullptr) {
    DecodeSideReference(layout, stored, out, out_stride);
  } else {
    decode(MakeSidePlan(layout), stored, out, out_stride);
    AddOutliers(layout, stored, out, out_stride);
  }
}

}  // namespace kvant
