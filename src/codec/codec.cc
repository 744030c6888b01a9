// Chooses the level: float sides and the scalar level take the reference, coded sides a vector one.
#include "codec/codec.h"

#include "codec/normed_codec.h"
#include "codec/side_plan.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(KVANT_SCALAR_ONLY)

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
  plan.lanes_are_tokens = s.side == Side::kK;
  plan.blocks = s.blocks();
  plan.rows = plan.lanes_are_tokens ? s.head_dim : s.block_tokens;
  plan.lanes = s.lanes();
  plan.used_lanes = plan.lanes_are_tokens ? s.block_tokens : s.head_dim;
  plan.steps = s.reduce() / kStep;
  plan.source_block_bytes = static_cast<int64_t>(plan.rows) * plan.lanes * 2;
  plan.is_codebook = s.format.levels == Levels::kCodebook;
  plan.offset = s.format.offset;
  plan.has_offset = s.format.metadata_bytes_per_group() == 4;
  plan.last_code = static_cast<float>((1 << s.format.bits) - 1);
  plan.centre = static_cast<float>(1 << (s.format.bits - 1));
  PlanGroups(s, &plan);
  plan.metadata_bytes = s.codes_offset;
  plan.block_bytes = s.block_bytes;
  const Planes planes = PlanesOf(s.format.bits);
  plan.planes[0] = {planes.low, 0, 0, PlaneBytes(planes.low, kLaneBlock, s.reduce())};
  if (planes.high != 0) {
    plan.planes[1] = {planes.high, planes.low, s.plane_bytes[0],
                      PlaneBytes(planes.high, kLaneBlock, s.reduce())};
  }
  return plan;
}

EncodeCodedFn EncodeOfLevel() {
  switch (ActiveIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx2:
    case Isa::kAvxVnni:
      return EncodeCodedAvx2;
    case Isa::kAvx512:
      return EncodeCodedAvx512;
#else
    case Isa::kNeon:
      return EncodeCodedNeon;
#endif
    default:  // scalar, and the levels of other processors
      return nullptr;
  }
}

DecodeCodedFn DecodeOfLevel() {
  switch (ActiveIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx2:
    case Isa::kAvxVnni:
      return DecodeCodedAvx2;
    case Isa::kAvx512:
      return DecodeCodedAvx512;
#else
    case Isa::kNeon:
      return DecodeCodedNeon;
#endif
    default:  // as above
      return nullptr;
  }
}

#else

SidePlan MakeSidePlan(const SideLayout&) { return {}; }
EncodeCodedFn EncodeOfLevel() { return nullptr; }
DecodeCodedFn DecodeOfLevel() { return nullptr; }

#endif

// The others take the reference, or a codec of their own.
bool HasVectorLevels(const Format& format) {
  return format.levels == Levels::kUniform || format.levels == Levels::kCodebook;
}

}  // namespace

void EncodeSide(const SideLayout& open, const std::byte* source, const SideLayout& layout,
                int first_token, std::byte* stored) {
  if (layout.format.is_normed()) {
    EncodeNormedSide(open, source, layout, first_token, stored);
    return;
  }
  const bool is_vectorised = HasVectorLevels(layout.format) && open.format == kFormatF16;
  const EncodeCodedFn encode = is_vectorised ? EncodeOfLevel() : nullptr;
  if (encode == nullptr) {
    EncodeSideReference(open, source, layout, first_token, stored);
  } else {
    encode(MakeSidePlan(layout), source, first_token, stored);
  }
}

void DecodeSide(const SideLayout& layout, const std::byte* stored, float* out, int64_t out_stride) {
  const bool is_vectorised = HasVectorLevels(layout.format);
  const DecodeCodedFn decode = is_vectorised ? DecodeOfLevel() : nullptr;
  if (decode == nullptr) {
    DecodeSideReference(layout, stored, out, out_stride);
  } else {
    decode(MakeSidePlan(layout), stored, out, out_stride);
  }
}

}  // namespace kvant
