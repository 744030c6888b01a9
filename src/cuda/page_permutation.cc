#include "cuda/page_permutation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/float16.h"
#include "base/unaligned.h"
#include "codec/code_place.h"
#include "cuda/device_page.h"

namespace kvant {
namespace {

using namespace cuda;  // of the device page's places

bool IsPlain(const Format& f, int bits) {
  Format plain;
  plain.levels = Levels::kUniform;
  plain.bits = bits;
  plain.axis = f.axis;
  plain.group = f.group;
  plain.offset = f.offset;
  return f == plain && (bits == 8 || bits == 4 || bits == 2);
}

bool IsKFormat(const SideLayout& k) {
  return IsPlain(k.format, k.format.bits) && k.format.axis == Axis::kChannel && k.group == 64 &&
         k.format.offset == Offset::kMin;
}
bool IsVFormat(const SideLayout& v) {
  return IsPlain(v.format, v.format.bits) && v.format.axis == Axis::kToken &&
         (v.group == kVGroupChannels || v.group == v.head_dim) &&
         (v.format.offset == Offset::kMin || v.format.offset == Offset::kNone);
}

// Visits the codes (or halves) of a side: visit(token, channel, first bit in the side's payload).
template <typename Visit>
void ForEachCode(const SideLayout& s, const Visit& visit) {
  for (int token = 0; token < kDevicePageTokens; ++token) {
    for (int channel = 0; channel < s.head_dim; ++channel) {
      visit(token, channel, BitOf(s.side == Side::kK, s.format.bits, s.head_dim, token, channel));
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

// Visits the scales: visit(stored place of the scale, device place, device place of its offset).
template <typename Visit>
void ForEachScale(const PageLayout& layout, const Visit& visit) {
  const int dim = layout.k.head_dim;
  for (int c = 0; c < dim; ++c) {
    visit(layout.k, c * 2, PairOrder(dim / 16, c) * 2,
          KOffsetsByte(dim) + OffsetOrder(dim / 16, c) * 2);
  }
  for (int group = 0; group < VGroups(dim); ++group) {
    const int base = group * 2 * kDevicePageTokens;
    for (int token = 0; token < kDevicePageTokens; ++token) {
      const int stored_group = layout.v.channel_groups == 1 ? 0 : group;
      visit(layout.v, layout.v_offset_bytes + ScaleByte(layout.v, token, stored_group),
            VScalesByte(dim) + base + PairOrder(kTokenBlocks, token) * 2,
            VOffsetsByte(dim) + base + OffsetOrder(kTokenBlocks, token) * 2);
    }
  }
}

Status PackScales(const PageLayout& layout, const std::byte* stored, std::byte* metadata) {
  Status status;
  ForEachScale(layout, [&](const SideLayout& s, int from, int scale_at, int offset_at) {
    const uint16_t scale = LoadU16(stored + from);
    StoreU16(metadata + scale_at, scale);
    if (s.format.offset == Offset::kMin) {
      StoreU16(metadata + offset_at, LoadU16(stored + from + s.offsets_from_scales));
      return;
    }
    const float offset = 0.0f - F16ToF32(scale) * static_cast<float>(1 << (s.format.bits - 1));
    const uint16_t half = F32ToF16(offset);
    if (F16ToF32(half) != offset && status.ok()) {
      status = Status::Unsupported("a scale of " + std::to_string(F16ToF32(scale)) +
                                   " makes an offset of " + std::to_string(offset) +
                                   ", which f16 does not hold");
    }
    StoreU16(metadata + offset_at, half);
  });
  return status;
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
  const int bits = layout.k.format.bits;
  const bool f16 = layout.k.format == kFormatF16 && layout.v.format == kFormatF16;
  const bool coded = IsKFormat(layout.k) && IsVFormat(layout.v) && bits == layout.v.format.bits;
  if (layout.tokens != kDevicePageTokens || (!f16 && !coded)) {
    return Status::Unsupported("no device kernel reads pages of " + std::to_string(layout.tokens) +
                               " tokens of " + FormatSpec(layout.k.format) + " and " +
                               FormatSpec(layout.v.format) +
                               ", only of 64 tokens of f16, or int8, int4 or int2 on both sides, K "
                               "as int4:channel:g64:min, "
                               "V as int4:token:g64:min, int4:token:min or int4:token:none");
  }
  return DevicePageBytes{PagePayloadBytes(bits, dim), PageMetadataBytes(bits, dim)};
}

Status PackDevicePage(const PageLayout& layout, std::span<const std::byte> stored,
                      std::span<std::byte> payload, std::span<std::byte> metadata) {
  KVANT_RETURN_IF_ERROR(CheckSizes(layout, stored.size(), payload.size(), metadata.size()));
  std::fill(payload.begin(), payload.end(), std::byte{0});
  PackCodes(layout.k, stored.data(), payload.data());
  PackCodes(layout.v, stored.data() + layout.v_offset_bytes,
            payload.data() + SidePayloadBytes(layout.k.format.bits, layout.k.head_dim));
  if (layout.k.format.is_float()) return Status::Ok();
  return PackScales(layout, stored.data(), metadata.data());
}

Status UnpackDevicePage(const PageLayout& layout, std::span<const std::byte> payload,
                        std::span<const std::byte> metadata, std::span<std::byte> stored) {
  KVANT_RETURN_IF_ERROR(CheckSizes(layout, stored.size(), payload.size(), metadata.size()));
  std::fill(stored.begin(), stored.end(), std::byte{0});
  UnpackCodes(layout.k, payload.data(), stored.data());
  UnpackCodes(layout.v, payload.data() + SidePayloadBytes(layout.k.format.bits, layout.k.head_dim),
              stored.data() + layout.v_offset_bytes);
  if (layout.k.format.is_float()) return Status::Ok();
  ForEachScale(layout, [&](const SideLayout& s, int to, int scale_at, int offset_at) {
    StoreU16(stored.data() + to, LoadU16(metadata.data() + scale_at));
    if (s.format.offset == Offset::kMin) {
      StoreU16(stored.data() + to + s.offsets_from_scales, LoadU16(metadata.data() + offset_at));
    }
  });
  return Status::Ok();
}

}  // namespace kvant
