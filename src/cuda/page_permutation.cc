#include "cuda/page_permutation.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/float16.h"
#include "base/unaligned.h"
#include "codec/code_place.h"
#include "codec/level_tables.h"
#include "cuda/device_page.h"

namespace kvant {
namespace {

using namespace cuda;  // of the device page's places

bool IsPlain(const Format& f) {
  Format plain;
  plain.levels = Levels::kUniform;
  plain.bits = f.bits;
  plain.axis = f.axis;
  plain.group = f.group;
  plain.offset = f.offset;
  return f == plain;
}

bool IsKFormat(const SideLayout& k) {
  return IsPlain(k.format) && k.format.axis == Axis::kChannel && k.group == 64 &&
         k.format.offset == Offset::kMin;
}
bool IsVFormat(const SideLayout& v) {
  return IsPlain(v.format) && v.format.axis == Axis::kToken &&
         (v.group == kVGroupChannels || v.group == v.head_dim) &&
         (v.format.offset == Offset::kMin || v.format.offset == Offset::kNone);
}

// Codes of 4 bits of one constant table, f16 norms, and nothing of a page besides. What is done to
// vectors before they come to the cache is not seen here.
bool IsCodebook(const Format& f) {
  const bool of_table = f.levels == Levels::kLloydMax || f.levels == Levels::kNested;
  return of_table && f.bits == 4 && !f.page_mean && !f.norms_8bit;
}

// Nothing where no kernel reads such a side.
std::optional<SideCode> CodeOf(const SideLayout& s) {
  if (s.format == kFormatF16) return SideCode::kF16;
  if (s.format.levels == Levels::kE4M3) return SideCode::kE4M3;
  if (IsCodebook(s.format)) return SideCode::kLevels4;
  if (s.side == Side::kK ? !IsKFormat(s) : !IsVFormat(s)) return std::nullopt;
  switch (s.format.bits) {
    case 8:
      return SideCode::kInt8;
    case 4:
      return SideCode::kInt4;
    case 2:
      return SideCode::kInt2;
    default:
      return std::nullopt;
  }
}
std::optional<PageCode> CodeOf(const PageLayout& layout) {
  constexpr PageCode kPages[] = {kF16Page, kInt8Page, kInt4Page,     kInt2Page,
                                 kFp8Page, kTq4Page,  kInt8Int4Page, kInt4Int2Page};
  const std::optional<SideCode> k = CodeOf(layout.k), v = CodeOf(layout.v);
  if (!k || !v) return std::nullopt;
  const PageCode code = {*k, *v};
  return std::find(std::begin(kPages), std::end(kPages), code) != std::end(kPages)
             ? std::optional(code)
             : std::nullopt;
}

constexpr float kLevelHalfUnit = 128.0f;  // level of a half of 1

// Visits the codes (or halves) of a side: visit(token, channel, first bit in the side's payload).
template <typename Visit>
void ForEachCode(const SideLayout& s, const Visit& visit) {
  for (int token = 0; token < kDevicePageTokens; ++token) {
    for (int channel = 0; channel < s.head_dim; ++channel) {
      visit(token, channel, BitOf(s.side == Side::kK, *CodeOf(s), s.head_dim, token, channel));
    }
  }
}

void PackCodes(const SideLayout& s, const std::byte* stored, std::byte* payload) {
  ForEachCode(s, [&](int token, int channel, int bit) {
    if (s.format.is_float()) {
      std::memcpy(payload + bit / 8, stored + IndexInBlock(s, token, channel) * 2, 2);
      return;
    }
    payload[bit / 8] |= static_cast<std::byte>(LoadCode(s, stored, token, channel) << (bit % 8));
  });
}
void UnpackCodes(const SideLayout& s, const std::byte* payload, std::byte* stored) {
  ForEachCode(s, [&](int token, int channel, int bit) {
    if (s.format.is_float()) {
      std::memcpy(stored + IndexInBlock(s, token, channel) * 2, payload + bit / 8, 2);
      return;
    }
    const int mask = (1 << s.format.bits) - 1;
    StoreCode(s, stored, token, channel, (static_cast<int>(payload[bit / 8]) >> (bit % 8)) & mask);
  });
}

// Visits the scales of a side: visit(place in the stored side, in the device's, there of the
// offset).
template <typename Visit>
void ForEachScale(const SideLayout& s, const Visit& visit) {
  const int dim = s.head_dim;
  const SideCode code = *CodeOf(s);
  if (IsByToken(code)) {
    for (int token = 0; token < kDevicePageTokens; ++token) {
      const int order = s.side == Side::kK ? TokenOrder(token) : PairOrder(kTokenBlocks, token);
      const int stored = s.format.is_normed() ? s.norms_offset + token * 2 : ScaleByte(s, token, 0);
      visit(stored, order * 2, 0);
    }
    return;
  }
  if (s.side == Side::kK) {
    for (int c = 0; HasOffsets(code) && c < dim; ++c) {
      visit(c * 2, PairOrder(dim / 16, c) * 2, KOffsetsByte(dim) + OffsetOrder(dim / 16, c) * 2);
    }
    return;
  }
  for (int group = 0; HasOffsets(code) && group < VGroups(dim); ++group) {
    const int base = group * 2 * kDevicePageTokens;
    for (int token = 0; token < kDevicePageTokens; ++token) {
      visit(ScaleByte(s, token, s.channel_groups == 1 ? 0 : group),
            base + PairOrder(kTokenBlocks, token) * 2,
            VOffsetsByte(dim) + base + OffsetOrder(kTokenBlocks, token) * 2);
    }
  }
}

// A device's scale over the stored one.
float ScaleFactorOf(const SideLayout& s) { return *CodeOf(s) == SideCode::kE4M3 ? 256.0f : 1.0f; }

Status PackOffset(const SideLayout& s, uint16_t scale, const std::byte* stored, std::byte* offset) {
  if (s.format.offset == Offset::kMin) {
    StoreU16(offset, LoadU16(stored + s.offsets_from_scales));
    return Status::Ok();
  }
  const float exact = 0.0f - F16ToF32(scale) * static_cast<float>(1 << (s.format.bits - 1));
  const uint16_t half = F32ToF16(exact);
  StoreU16(offset, half);
  if (F16ToF32(half) == exact) return Status::Ok();
  return Status::Unsupported("a scale of " + std::to_string(F16ToF32(scale)) +
                             " makes an offset of " + std::to_string(exact) +
                             ", which f16 does not hold");
}

Status PackScales(const SideLayout& s, const std::byte* stored, std::byte* metadata) {
  Status status;
  ForEachScale(s, [&](int from, int scale_at, int offset_at) {
    const uint16_t scale = LoadU16(stored + from);
    StoreU16(metadata + scale_at, F32ToF16(F16ToF32(scale) * ScaleFactorOf(s)));
    if (!HasOffsets(*CodeOf(s))) return;
    const Status offset = PackOffset(s, scale, stored + from, metadata + offset_at);
    if (status.ok()) status = offset;
  });
  return status;
}
void UnpackScales(const SideLayout& s, const std::byte* metadata, std::byte* stored) {
  ForEachScale(s, [&](int to, int scale_at, int offset_at) {
    const float scale = F16ToF32(LoadU16(metadata + scale_at)) / ScaleFactorOf(s);
    StoreU16(stored + to, F32ToF16(scale));
    if (HasOffsets(*CodeOf(s)) && s.format.offset == Offset::kMin) {
      StoreU16(stored + to + s.offsets_from_scales, LoadU16(metadata + offset_at));
    }
  });
}

Status CheckSizes(const PageLayout& layout, size_t stored, size_t payload, size_t metadata) {
  KVANT_ASSIGN_OR_RETURN(const DevicePageBytes bytes, DevicePageBytesOf(layout));
  const auto check = [](const char* what, size_t has, int needs) {
    if (has == static_cast<size_t>(needs)) return Status::Ok();
    return Status::InvalidArgument(std::string(what) + " has " + std::to_string(has) +
                                   " bytes instead of " + std::to_string(needs));
  };
  KVANT_RETURN_IF_ERROR(check("the stored page", stored, layout.page_bytes));
  KVANT_RETURN_IF_ERROR(check("the payload", payload, bytes.payload));
  return check("the metadata", metadata, bytes.metadata);
}

}  // namespace

Result<DevicePageBytes> DevicePageBytesOf(const PageLayout& layout) {
  const int dim = layout.k.head_dim;
  const int dims[] = {64, 80, 96, 128, 256};
  if (std::find(std::begin(dims), std::end(dims), dim) == std::end(dims)) {
    return Status::Unsupported("no device kernel reads heads of " + std::to_string(dim) +
                               " channels, only of 64, 80, 96, 128 and 256");
  }
  const std::optional<PageCode> code = CodeOf(layout);
  const bool of_common_sizes = code && (code->k != code->v || *code == kTq4Page);
  if (of_common_sizes && dim != 64 && dim != 128) {
    return Status::Unsupported("no device kernel reads heads of " + std::to_string(dim) +
                               " channels of tq4, or whose K and V have two widths, only of 64 "
                               "and 128");
  }
  if (layout.tokens != kDevicePageTokens || !code) {
    return Status::Unsupported(
        "no device kernel reads pages of " + std::to_string(layout.tokens) + " tokens of " +
        FormatSpec(layout.k.format) + " and " + FormatSpec(layout.v.format) +
        ", only of 64 tokens of f16, fp8_e4m3, tq4, or int8, int4 or int2 "
        "on both sides, int8 K with int4 V, or int4 K with int2 V, K as int4:channel:g64:min, "
        "V as int4:token:g64:min, int4:token:min or int4:token:none");
  }
  return DevicePageBytes{PagePayloadBytes(*code, dim), PageMetadataBytes(*code, dim)};
}

Status PackDevicePage(const PageLayout& layout, std::span<const std::byte> stored,
                      std::span<std::byte> payload, std::span<std::byte> metadata) {
  KVANT_RETURN_IF_ERROR(CheckSizes(layout, stored.size(), payload.size(), metadata.size()));
  std::fill(payload.begin(), payload.end(), std::byte{0});
  PackCodes(layout.k, stored.data(), payload.data());
  PackCodes(layout.v, stored.data() + layout.v_offset_bytes,
            payload.data() + SidePayloadBytes(*CodeOf(layout.k), layout.k.head_dim));
  KVANT_RETURN_IF_ERROR(PackScales(layout.k, stored.data(), metadata.data()));
  return PackScales(layout.v, stored.data() + layout.v_offset_bytes,
                    metadata.data() + KMetadataBytes(*CodeOf(layout.k), layout.k.head_dim));
}

DeviceLevels DeviceLevelsOf(const SideLayout& side) {
  const LevelTable& table = LevelTableOf(side);
  DeviceLevels levels;
  for (size_t i = 0; i < levels.halves.size(); ++i) {
    levels.halves[i] = F32ToF16(static_cast<float>(table.levels[i]) / kLevelHalfUnit);
  }
  levels.unit = kLevelHalfUnit / table.sigma;
  levels.sigma = table.sigma;
  return levels;
}

Status UnpackDevicePage(const PageLayout& layout, std::span<const std::byte> payload,
                        std::span<const std::byte> metadata, std::span<std::byte> stored) {
  KVANT_RETURN_IF_ERROR(CheckSizes(layout, stored.size(), payload.size(), metadata.size()));
  std::fill(stored.begin(), stored.end(), std::byte{0});
  UnpackCodes(layout.k, payload.data(), stored.data());
  UnpackCodes(layout.v, payload.data() + SidePayloadBytes(*CodeOf(layout.k), layout.k.head_dim),
              stored.data() + layout.v_offset_bytes);
  UnpackScales(layout.k, metadata.data(), stored.data());
  UnpackScales(layout.v, metadata.data() + KMetadataBytes(*CodeOf(layout.k), layout.k.head_dim),
               stored.data() + layout.v_offset_bytes);
  return Status::Ok();
}

}  // namespace kvant
