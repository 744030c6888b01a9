#include "cache/key_rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <string>

#include "codec/codec.h"

namespace kvant {

std::vector<double> RopeFrequencies(double base, int dims) {
  std::vector<double> frequencies;
  for (int i = 0; i < dims / 2; ++i) frequencies.push_back(std::pow(base, -2.0 * i / dims));
  return frequencies;
}

Rope UsualRope(int head_dim) { return {RopePairs::kHalves, RopeFrequencies(10000, head_dim)}; }

KeyRopeTable::KeyRopeTable(const Rope& rope) : rope_(rope) {
  for (const double frequency : rope.frequencies) {
    for (int j = 0; j < kPageTokens; ++j) {
      offsets_.push_back(static_cast<float>(std::cos(j * frequency)));
    }
    for (int j = 0; j < kPageTokens; ++j) {
      offsets_.push_back(static_cast<float>(std::sin(j * frequency)));
    }
  }
}

Status KeyRopeTable::Grow(int64_t tokens) try {
  const int64_t row = 2 * static_cast<int64_t>(rope_.frequencies.size());
  if (row == 0) return Status::Ok();
  const int64_t blocks = (tokens + kPageTokens - 1) / kPageTokens;
  const auto values = static_cast<size_t>(blocks * row);
  if (values > starts_.capacity()) starts_.reserve(std::max(values, 2 * starts_.size()));
  for (auto block = static_cast<int64_t>(starts_.size()) / row; block < blocks; ++block) {
    const auto position = static_cast<double>(block * kPageTokens);
    for (const double f : rope_.frequencies) {
      starts_.push_back(static_cast<float>(std::cos(position * f)));
    }
    for (const double f : rope_.frequencies) {
      starts_.push_back(static_cast<float>(std::sin(position * f)));
    }
  }
  return Status::Ok();
} catch (const std::bad_alloc&) {
  return Status::OutOfMemory("cannot allocate the rotations of " + std::to_string(tokens) +
                             " positions");
}

KeyRope KeyRopeTable::view() const {
  const bool halves = rope_.pairs == RopePairs::kHalves;
  const int count = static_cast<int>(rope_.frequencies.size());
  return {count, halves ? 1 : 2, halves ? count : 1, starts_.data(), offsets_.data()};
}

void TurnBack(const KeyRope& rope, const SideLayout& open, const std::byte* page,
              int64_t first_position, std::byte* out) {
  std::memcpy(out, page, static_cast<size_t>(open.bytes));
  for (int t = 0; t < open.tokens; ++t) {
    const float* const start = rope.starts + (first_position + t) / kPageTokens * 2 * rope.count;
    for (int i = 0; i < rope.count; ++i) {
      const float* const offset = rope.offsets + i * 2 * kPageTokens + t % kPageTokens;
      const float c0 = start[i], s0 = start[rope.count + i];
      const float cj = offset[0], sj = offset[kPageTokens];
      const float c = c0 * cj - s0 * sj, s = s0 * cj + c0 * sj;
      const int first = rope.step * i, second = first + rope.to_partner;
      const float a = LoadFloatValue(open, page, t, first);
      const float b = LoadFloatValue(open, page, t, second);
      StoreFloatValue(open, out, t, first, a * c + b * s);
      StoreFloatValue(open, out, t, second, b * c - a * s);
    }
  }
}

}  // namespace kvant
