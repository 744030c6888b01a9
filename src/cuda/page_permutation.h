// Stored pages (format/page_layout.h) to device pages (cuda/device_page.h) and back: a permutation
// of the codes, and of the scales and offsets what the device's one form needs of them.
// Thread rules: pure functions on the caller's bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "format/page_layout.h"
#include "kvant/status.h"

namespace kvant {

struct DevicePageBytes {
  int payload = 0, metadata = 0;
};

// kUnsupported where the kernels do not read such a page, in one sentence. They read heads of 64,
// 80, 96, 128 and 256 channels, pages of 64 tokens, the same kind of codes on both sides or int8 K
// with int4 V or int4 K with int2 V; of two widths and of levels, heads of 64 and 128 channels:
//   f16
//   fp8_e4m3
//   levels: tq4, nest4 with f16 norms and no page mean
//   K int8, int4, int2 along channels in groups of 64 tokens with min
//   V int8, int4, int2 along tokens in groups of 64 or of the whole head, with min or symmetric
Result<DevicePageBytes> DevicePageBytesOf(const PageLayout& layout);

// stored [layout.page_bytes]; payload and metadata as DevicePageBytesOf says, written whole. V's
// whole-head scales come once for each 64 channels; a symmetric side gets the offset
// -scale * 2^(bits - 1), kUnsupported where f16 does not hold it. kInvalidArgument names a buffer
// of another size.
Status PackDevicePage(const PageLayout& layout, std::span<const std::byte> stored,
                      std::span<std::byte> payload, std::span<std::byte> metadata);

// Gives the stored page back, byte for byte where its padding was 0, as codecs write it.
Status UnpackDevicePage(const PageLayout& layout, std::span<const std::byte> payload,
                        std::span<const std::byte> metadata, std::span<std::byte> stored);

// The table of tq4 pages as kernels take it (arguments.h). REQUIRES: DevicePageBytesOf accepts
// pages of the side, whose format is tq4 or nest4.
struct DeviceLevels {
  std::array<uint16_t, 16> halves = {};
  float unit = 0;   // a value is norm * unit * half
  float sigma = 0;  // what the levels approximate is of this deviation
};
DeviceLevels DeviceLevelsOf(const SideLayout& side);

}  // namespace kvant
