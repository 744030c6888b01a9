// A row of device pages made by the CPU's codec, what attention over it is in double, and how far a
// kernel may be from that.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/unaligned.h"
#include "codec/code_place.h"
#include "codec/codec.h"
#include "codec/test_pages.h"
#include "cuda/arguments.h"
#include "cuda/kernel_table.h"
#include "cuda/page_permutation.h"

namespace kvant::simt {

inline Format DeviceFormat(Side side, cuda::SideCode code) {
  if (code == cuda::SideCode::kF16) return kFormatF16;
  if (code == cuda::SideCode::kE4M3) return *ParseFormat("fp8_e4m3", side);
  if (code == cuda::SideCode::kLevels4) return *ParseFormat("tq4", side);
  const int bits = cuda::BitsOf(code);
  if (side == Side::kK) return UniformFormat(bits, Axis::kChannel, 64, Offset::kMin);
  // Symmetric V where a preset has it so (int8), groups of 64 elsewhere.
  return bits == 8 ? UniformFormat(8, Axis::kToken, 0, Offset::kNone)
                   : UniformFormat(bits, Axis::kToken, 64, Offset::kMin);
}

// A value, and of what it is made: |scale * code|, |offset|, and both factors of the first, by
// magnitude and as the device page has them.
struct Parts {
  double value = 0, coded = 0, offset = 0, code = 0, scale = 0;
};

struct DecodeWorld {
  static constexpr int kRows = 2;  // of the grid
  cuda::PageCode page;
  int dim, pages = 0, heads;
  PageLayout layout;
  DevicePageBytes bytes;
  std::vector<std::byte> payload, metadata;  // of all pages of all rows, in no order
  std::vector<uint32_t> table;               // [kRows][pages]
  std::vector<float> queries;                // [kRows][heads][dim], halves
  std::vector<Parts> k, v;                   // [kRows][pages * 64][dim]
  std::vector<cuda::TokenRange> ranges;      // [kRows]
  float score_scale;
  DeviceLevels levels;  // of the sides whose codes are levels

  DecodeWorld(cuda::PageCode page_, int dim_, int heads_, std::vector<cuda::TokenRange> visible,
              uint64_t seed)
      : page(page_), dim(dim_), heads(heads_), ranges(std::move(visible)) {
    for (const cuda::TokenRange& range : ranges) pages = std::max(pages, (range.end + 63) / 64);
    layout =
        MakePageLayout(DeviceFormat(Side::kK, page.k), DeviceFormat(Side::kV, page.v), dim, 64);
    bytes = *DevicePageBytesOf(layout);
    for (const SideLayout* s : {&layout.k, &layout.v}) {
      if (s->format.is_normed()) levels = DeviceLevelsOf(*s);
    }
    score_scale = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(dim)));
    payload.resize(static_cast<size_t>(kRows * pages * bytes.payload));
    metadata.resize(static_cast<size_t>(kRows * pages * bytes.metadata));
    table.resize(static_cast<size_t>(kRows * pages));
    for (int row = 0; row < kRows; ++row) {
      for (int i = 0; i < pages; ++i) MakePage(row, i, seed);
    }
    for (int i = 0; i < kRows * heads * dim; ++i) {
      const float x = 2 * MixUnit(seed * 77 + static_cast<uint64_t>(i)) - 1;
      queries.push_back(F16ToF32(F32ToF16(2 * x)));
    }
  }

  // What a value has besides its scale and its half.
  double Unit(cuda::SideCode code) const {
    return code == cuda::SideCode::kLevels4 ? static_cast<double>(levels.unit) : 1;
  }
  bool Visible(int row, int token) const {
    const cuda::TokenRange& range = ranges[static_cast<size_t>(row)];
    return token >= range.first && token < range.end;
  }
  const Parts& At(const std::vector<Parts>& side, int row, int token, int channel) const {
    return side[static_cast<size_t>((row * pages * 64 + token) * dim + channel)];
  }

 private:
  void MakePage(int row, int index, uint64_t seed) {
    const int number = (row * pages + index) * 3 % (kRows * pages);
    const uint32_t place = static_cast<uint32_t>(FreePlace(number));
    table[static_cast<size_t>(row * pages + index)] = place;
    const auto value = [&](uint64_t side, int t, int c) {
      const uint64_t at =
          ((seed * 2 + side) * 1000 + static_cast<uint64_t>(row * pages + index)) * 100000 +
          static_cast<uint64_t>(t * dim + c);
      // Channels have means; f16 slots that nobody sees hold NaN.
      if (page == cuda::kF16Page && !Visible(row, index * 64 + t)) {
        return std::numeric_limits<float>::quiet_NaN();
      }
      return 2 * MixUnit(at) - 1 + 3 * MixUnit(side * 1000 + static_cast<uint64_t>(c)) - 1.5f;
    };
    std::vector<std::byte> stored(static_cast<size_t>(layout.page_bytes));
    for (uint64_t side = 0; side < 2; ++side) {
      const SideLayout& s = side == 0 ? layout.k : layout.v;
      const OpenSide open(s.side, dim, 64, [&](int t, int c) { return value(side, t, c); });
      const CodedSide coded = CodeByReference(open, s.format, 0);
      std::copy(coded.bytes.begin(), coded.bytes.end(),
                stored.begin() + (side == 0 ? 0 : layout.v_offset_bytes));
      for (int i = 0; i < 64 * dim; ++i) {
        (side == 0 ? k : v).push_back(PartsOf(s, coded, i / dim, i % dim));
      }
    }
    const auto at = [&](std::vector<std::byte>& pool, int size) {
      return std::span(pool).subspan(static_cast<size_t>(place) * static_cast<size_t>(size),
                                     static_cast<size_t>(size));
    };
    const Status status =
        PackDevicePage(layout, stored, at(payload, bytes.payload), at(metadata, bytes.metadata));
    packed = packed && status.ok();
  }

  // The page's own number, or the next that is free.
  int FreePlace(int number) {
    taken.resize(static_cast<size_t>(kRows * pages));
    while (taken[static_cast<size_t>(number)]) number = (number + 1) % (kRows * pages);
    taken[static_cast<size_t>(number)] = true;
    return number;
  }

  static Parts PartsOf(const SideLayout& s, const CodedSide& coded, int token, int channel) {
    const double value = static_cast<double>(coded.At(token, channel));
    if (s.format.is_float()) return {value, std::fabs(value), 0, 1, std::fabs(value)};
    if (s.format.is_float8() || s.format.is_normed()) {
      const int at = s.format.is_normed() ? s.norms_offset + 2 * token : ScaleByte(s, token, 0);
      const double scale = (s.format.is_float8() ? 256 : 1) *
                           static_cast<double>(F16ToF32(LoadU16(coded.bytes.data() + at)));
      return {value, std::fabs(value), 0, scale == 0 ? 0 : std::fabs(value) / scale, scale};
    }
    const double code = LoadCode(s, coded.bytes.data(), token, channel);
    const int group = s.channel_groups == 0 ? 0 : channel / s.group;
    const int scale_byte =
        s.format.axis == Axis::kChannel ? channel * 2 : ScaleByte(s, token, group);
    const GroupParameters p =
        UnpackParameters(s.format, LoadU16(coded.bytes.data() + scale_byte),
                         s.offsets_from_scales == 0
                             ? uint16_t{0}
                             : LoadU16(coded.bytes.data() + scale_byte + s.offsets_from_scales));
    const double scaled = static_cast<double>(p.scale) * code;
    return {scaled + static_cast<double>(p.offset), std::fabs(scaled),
            std::fabs(static_cast<double>(p.offset)), code,
            std::fabs(static_cast<double>(p.scale))};
  }

  std::vector<bool> taken;

 public:
  bool packed = true;
};

}  // namespace kvant::simt
