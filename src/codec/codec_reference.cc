// The scalar codec, in the order of the formulas: gather a group, fit it, code it, place the codes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/unaligned.h"
#include "codec/code_place.h"
#include "codec/codec.h"
#include "codec/normed_codec.h"
#include "codec/side_band.h"
#include "codec/small_float.h"

namespace kvant {
namespace {

// A group of one coded side: the positions it covers and where its metadata lies.
struct GroupPlace {
  int first_token, tokens;
  int first_channel, channels;
  int scale_byte;  // from the start of the side
};

// Calls visit(GroupPlace) for every group of the side.
template <typename Visit>
void ForEachGroup(const SideLayout& s, const Visit& visit) {
  if (s.format.axis == Axis::kChannel) {
    for (int g = 0; g < s.token_groups; ++g) {
      for (int c = 0; c < s.head_dim; ++c) {
        visit(GroupPlace{g * s.group, s.group, c, 1, (g * s.padded_dim + c) * 2});
      }
    }
    return;
  }
  for (int t = 0; t < s.tokens; ++t) {
    for (int g = 0; g < s.channel_groups; ++g) {
      const int first = g * s.group, count = std::min(s.group, s.head_dim - first);
      visit(GroupPlace{t, 1, first, count, ScaleByte(s, t, g)});
    }
  }
}

GroupParameters LoadParameters(const SideLayout& s, const std::byte* stored, int scale_byte) {
  const bool has_offset = s.format.metadata_bytes_per_group() == 4;
  return UnpackParameters(
      s.format, LoadU16(stored + scale_byte),
      has_offset ? LoadU16(stored + scale_byte + s.offsets_from_scales) : uint16_t{0});
}

void EncodeGroup(const SideLayout& open, const std::byte* source, const SideLayout& s,
                 int first_token, const GroupPlace& place, std::byte* stored) {
  const int begin = std::max(place.first_token, first_token);
  const int end = place.first_token + place.tokens;
  if (begin >= end) return;  // sinks only: the zeros written before stand
  std::array<float, kMaxGroupValues> values;
  size_t count = 0;
  const auto for_each_value = [&](const auto& visit) {
    for (int t = begin; t < end; ++t) {
      for (int c = place.first_channel; c < place.first_channel + place.channels; ++c) {
        visit(t, c, LoadFloatValue(open, source, t, c));
      }
    }
  };
  for_each_value([&](int t, int c, float x) {
    if (s.format.outliers == 0 || !IsPicked(s, stored, t, c)) values[count++] = x;
  });
  const GroupParameters p = FitValues(s.format, std::span(values).first(count));
  StoreU16(stored + place.scale_byte, p.scale_bits);
  if (s.format.metadata_bytes_per_group() == 4) {
    StoreU16(stored + place.scale_byte + s.offsets_from_scales, p.offset_bits);
  }
  for_each_value(
      [&](int t, int c, float x) { StoreCode(s, stored, t, c, CodeOf(s.format, p, x)); });
}

void EncodeSmallFloatGroup(const SideLayout& open, const std::byte* source, const SideLayout& s,
                           int first_token, const GroupPlace& place, std::byte* stored) {
  if (place.first_token < first_token) return;  // sinks: the zeros written before stand
  std::array<float, kMaxGroupValues> values;
  std::array<uint8_t, kMaxGroupValues> codes;
  const auto count = static_cast<size_t>(place.channels);
  for (size_t i = 0; i < count; ++i) {
    values[i] =
        LoadFloatValue(open, source, place.first_token, place.first_channel + static_cast<int>(i));
  }
  const uint16_t scale = EncodeSmallFloats(s.format, std::span(values).first(count), codes);
  std::memcpy(stored + place.scale_byte, &scale, static_cast<size_t>(s.scale_bytes));
  for (size_t i = 0; i < count; ++i) {
    StoreCode(s, stored, place.first_token, place.first_channel + static_cast<int>(i), codes[i]);
  }
}

void DecodeSmallFloatGroup(const SideLayout& s, const std::byte* stored, const GroupPlace& place,
                           float* out) {
  uint16_t scale_bits = 0;
  std::memcpy(&scale_bits, stored + place.scale_byte, static_cast<size_t>(s.scale_bytes));
  for (int c = place.first_channel; c < place.first_channel + place.channels; ++c) {
    const int code = LoadCode(s, stored, place.first_token, c);
    out[c] = SmallFloatValue(s.format, scale_bits, static_cast<uint8_t>(code));
  }
}

}  // namespace

float LoadFloatValue(const SideLayout& s, const std::byte* side, int token, int channel) {
  const int block = token / s.block_tokens, at = IndexInBlock(s, token, channel);
  const std::byte* base = side + static_cast<int64_t>(block) * s.block_bytes;
  if (s.format.float_type == FloatType::kF32) {
    float value;
    std::memcpy(&value, base + at * 4, sizeof value);
    return value;
  }
  const uint16_t bits = LoadU16(base + at * 2);
  return s.format.float_type == FloatType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
}

void StoreFloatValue(const SideLayout& s, std::byte* side, int token, int channel, float value) {
  const int block = token / s.block_tokens, at = IndexInBlock(s, token, channel);
  std::byte* base = side + static_cast<int64_t>(block) * s.block_bytes;
  switch (s.format.float_type) {
    case FloatType::kF32:
      std::memcpy(base + at * 4, &value, sizeof value);
      break;
    case FloatType::kF16:
      StoreU16(base + at * 2, F32ToF16(value));
      break;
    case FloatType::kBf16:
      StoreU16(base + at * 2, F32ToBf16(value));
      break;
  }
}

void EncodeSideReference(const SideLayout& open, const std::byte* source, const SideLayout& s,
                         int first_token, std::byte* stored) {
  if (s.format.is_normed()) {
    EncodeNormedSideScalar(open, source, s, first_token, stored);
    return;
  }
  std::memset(stored, 0, static_cast<size_t>(s.bytes));  // padding, too: a page is saved and hashed
  if (s.format.is_float()) {
    for (int t = 0; t < s.tokens; ++t) {
      for (int c = 0; c < s.head_dim; ++c) {
        StoreFloatValue(s, stored, t, c, LoadFloatValue(open, source, t, c));
      }
    }
    return;
  }
  PickOutliers(open, source, s, first_token, stored);
  ForEachGroup(s, [&](const GroupPlace& place) {
    if (s.format.is_small_float()) {
      EncodeSmallFloatGroup(open, source, s, first_token, place, stored);
    } else {
      EncodeGroup(open, source, s, first_token, place, stored);
    }
  });
  FinishOutliers(s, stored);
}

void DecodeSideReference(const SideLayout& s, const std::byte* stored, float* out,
                         int64_t out_stride) {
  if (s.format.is_float()) {
    for (int t = 0; t < s.tokens; ++t) {
      for (int c = 0; c < s.head_dim; ++c) {
        out[t * out_stride + c] = LoadFloatValue(s, stored, t, c);
      }
    }
    return;
  }
  if (s.format.is_normed()) {
    DecodeNormedSide(s, stored, out, out_stride);
    return;
  }
  ForEachGroup(s, [&](const GroupPlace& place) {
    if (s.format.is_small_float()) {
      DecodeSmallFloatGroup(s, stored, place, out + place.first_token * out_stride);
      return;
    }
    const GroupParameters p = LoadParameters(s, stored, place.scale_byte);
    for (int t = place.first_token; t < place.first_token + place.tokens; ++t) {
      for (int c = place.first_channel; c < place.first_channel + place.channels; ++c) {
        out[t * out_stride + c] = ValueOf(s.format, p, LoadCode(s, stored, t, c));
      }
    }
  });
  AddOutliers(s, stored, out, out_stride);
}

float CodedValue(const SideLayout& s, const std::byte* stored, int token, int channel) {
  const int scale_byte =
      s.format.axis == Axis::kChannel
          ? (token / s.group * s.padded_dim + channel) * 2
          : ScaleByte(s, token, std::min(channel / s.group, s.channel_groups - 1));
  return ValueOf(s.format, LoadParameters(s, stored, scale_byte),
                 LoadCode(s, stored, token, channel));
}

}  // namespace kvant
