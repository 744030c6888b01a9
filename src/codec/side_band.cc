#include "codec/side_band.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/unaligned.h"
#include "codec/codec.h"

namespace kvant {
namespace {

constexpr uint16_t kUnused = 0xffff;
constexpr size_t kMaxVector = 1024;  // channels of a head, tokens of a group

// One vector of the side: element i is (token, channel) = first + i along one axis.
class BandVector {
 public:
  // Vector `at` of row `row`.
  BandVector(const SideLayout& s, int row, int at)
      : s_(s),
        by_channel_(s.format.axis == Axis::kChannel),
        token_(by_channel_ ? row * s.group : row * s.block_tokens + at),
        channel_(by_channel_ ? at : 0),
        first_place_(s.band_offset + (row * s.format.outliers * s.band_width + at) * 2) {}

  int size() const { return by_channel_ ? s_.group : s_.head_dim; }
  int token(int i) const { return token_ + (by_channel_ ? i : 0); }
  int channel(int i) const { return channel_ + (by_channel_ ? 0 : i); }
  // Of a slot, in bytes from the start of the side.
  int place(int slot) const { return first_place_ + slot * s_.band_width * 2; }
  int delta(int slot) const { return place(slot) + s_.deltas_from_places; }

 private:
  const SideLayout& s_;
  bool by_channel_;
  int token_, channel_, first_place_;
};

template <typename Visit>
void ForEachVector(const SideLayout& s, const Visit& visit) {
  if (s.format.outliers == 0) return;
  const int vectors = s.format.axis == Axis::kChannel ? s.head_dim : s.band_width;
  for (int row = 0; row < s.band_rows; ++row) {
    for (int at = 0; at < vectors; ++at) visit(BandVector(s, row, at));
  }
}

// Calls visit(vector, slot, element) for every slot in use whose place is inside its vector.
template <typename Visit>
void ForEachOutlier(const SideLayout& s, const std::byte* stored, const Visit& visit) {
  ForEachVector(s, [&](const BandVector& vector) {
    for (int slot = 0; slot < s.format.outliers; ++slot) {
      const int element = LoadU16(stored + vector.place(slot));
      if (element < vector.size()) visit(vector, slot, element);
    }
  });
}

}  // namespace

void PickOutliers(const SideLayout& open, const std::byte* source, const SideLayout& s,
                  int first_token, std::byte* stored) {
  ForEachVector(s, [&](const BandVector& vector) {
    std::array<float, kMaxVector> values;
    std::array<double, kMaxVector> distance;
    double sum = 0;
    int first = 0;  // of the vector that is not a sink
    while (first < vector.size() && vector.token(first) < first_token) ++first;
    const int count = vector.size() - first;
    for (int i = first; i < vector.size(); ++i) {
      const float x = LoadFloatValue(open, source, vector.token(i), vector.channel(i));
      values[static_cast<size_t>(i)] = x;
      sum += static_cast<double>(x);
    }
    for (int i = first; i < vector.size(); ++i) {
      const auto at = static_cast<size_t>(i);
      distance[at] = std::fabs(static_cast<double>(values[at]) - sum / count);
    }
    for (int slot = 0; slot < s.format.outliers; ++slot) {
      const auto farthest =
          std::max_element(distance.begin() + first, distance.begin() + vector.size());
      const bool is_picked = slot + 1 < count && *farthest > 0;
      const auto element = static_cast<size_t>(farthest - distance.begin());
      StoreU16(stored + vector.place(slot), is_picked ? static_cast<uint16_t>(element) : kUnused);
      if (!is_picked) continue;
      StoreU16(stored + vector.delta(slot), F32ToF16(values[element]));
      distance[element] = 0;
    }
  });
}

bool IsPicked(const SideLayout& s, const std::byte* stored, int token, int channel) {
  const bool by_channel = s.format.axis == Axis::kChannel;
  const BandVector vector = by_channel
                                ? BandVector(s, token / s.group, channel)
                                : BandVector(s, token / s.block_tokens, token % s.block_tokens);
  const int element = by_channel ? token % s.group : channel;
  for (int slot = 0; slot < s.format.outliers; ++slot) {
    if (LoadU16(stored + vector.place(slot)) == element) return true;
  }
  return false;
}

void FinishOutliers(const SideLayout& s, std::byte* stored) {
  ForEachVector(s, [&](const BandVector& vector) {
    for (int slot = 0; slot < s.format.outliers; ++slot) {
      std::byte* const place = stored + vector.place(slot);
      const int element = LoadU16(place);
      if (element == kUnused) {
        StoreU16(place, 0);
        continue;
      }
      std::byte* const delta = stored + vector.delta(slot);
      const float lacking = F16ToF32(LoadU16(delta)) -
                            CodedValue(s, stored, vector.token(element), vector.channel(element));
      StoreU16(delta, F32ToF16(std::clamp(lacking, -65504.0f, 65504.0f)));
    }
  });
}

void AddOutliers(const SideLayout& s, const std::byte* stored, float* out, int64_t out_stride) {
  ForEachOutlier(s, stored, [&](const BandVector& vector, int slot, int element) {
    out[vector.token(element) * out_stride + vector.channel(element)] +=
        F16ToF32(LoadU16(stored + vector.delta(slot)));
  });
}

}  // namespace kvant
