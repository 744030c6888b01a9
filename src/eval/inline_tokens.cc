#include "eval/inline_tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/float16.h"

namespace kvant {
namespace {

// A tag is the width; of a token that has gone, with this bit.
constexpr uint8_t kGone = 0x80;
constexpr int kTagBits = 5;  // of an entry of the list of places; the rest is the offset

// Decodes one side of a token. Code c of a byte's share lies head_dim / (codes a byte) apart.
template <int kWidth>
void DecodeCodes(const uint8_t* from, int head_dim, float* x) {
  uint16_t scale_bits, minimum_bits;
  std::memcpy(&scale_bits, from, 2);
  std::memcpy(&minimum_bits, from + 2, 2);
  const float scale = F16ToF32(scale_bits), minimum = F16ToF32(minimum_bits);
  constexpr int kInByte = 8 / kWidth;
  const int bytes = head_dim / kInByte;
  for (int part = 0; part < kInByte; ++part) {
    for (int i = 0; i < bytes; ++i) {
      const int code = from[4 + i] >> (part * kWidth) & ((1 << kWidth) - 1);
      x[part * bytes + i] = static_cast<float>(code) * scale + minimum;
    }
  }
}

void DecodeSide(int width, const uint8_t* from, int head_dim, float* x) {
  switch (width) {
    case 8:
      return DecodeCodes<8>(from, head_dim, x);
    case 4:
      return DecodeCodes<4>(from, head_dim, x);
    case 2:
      return DecodeCodes<2>(from, head_dim, x);
    default:
      for (int c = 0; c < head_dim; ++c) {
        uint16_t bits;
        std::memcpy(&bits, from + 2 * c, 2);
        x[c] = F16ToF32(bits);
      }
  }
}

// Softmax over tokens that come one by one.
class Softmax {
 public:
  Softmax(const float* q, int rows, int head_dim, float scale, float* out)
      : q_(q), rows_(rows), head_dim_(head_dim), scale_(scale), out_(out) {
    std::fill_n(out, rows * head_dim, 0.0f);
    max_.fill(-INFINITY);
  }

  void Take(const float* k, const float* v) {
    for (int row = 0; row < rows_; ++row) {
      float* const out = out_ + row * head_dim_;
      const auto at = static_cast<size_t>(row);
      const float score = Dot(q_ + row * head_dim_, k) * scale_;
      if (score > max_[at]) {
        const float shrink = std::exp(max_[at] - score);
        for (int c = 0; c < head_dim_; ++c) out[c] *= shrink;
        sum_[at] *= shrink;
        max_[at] = score;
      }
      const float p = std::exp(score - max_[at]);
      sum_[at] += p;
      for (int c = 0; c < head_dim_; ++c) out[c] += p * v[c];
    }
  }

  void Finish() {
    for (int row = 0; row < rows_; ++row) {
      for (int c = 0; c < head_dim_; ++c)
        out_[row * head_dim_ + c] /= sum_[static_cast<size_t>(row)];
    }
  }

 private:
  float Dot(const float* a, const float* b) const {
    float sums[16] = {};
    for (int c = 0; c < head_dim_; c += 16) {
      for (int i = 0; i < 16; ++i) sums[i] += a[c + i] * b[c + i];
    }
    float all = 0;
    for (const float sum : sums) all += sum;
    return all;
  }

  const float* const q_;
  const int rows_, head_dim_;
  const float scale_;
  float* const out_;
  std::array<float, InlineTokens::kMaxQueries> max_, sum_ = {};
};

}  // namespace

int64_t InlineTokens::RecordBytes(int width, int head_dim) {
  return 2 * (head_dim * width / 8 + (width == 16 ? 0 : 4));
}

void InlineTokens::AddRecord(int width, const float* x) {
  const auto add16 = [&](uint16_t bits) {
    bytes_.push_back(static_cast<uint8_t>(bits));
    bytes_.push_back(static_cast<uint8_t>(bits >> 8));
  };
  if (width == 16) {
    for (int c = 0; c < head_dim_; ++c) add16(F32ToF16(x[c]));
    return;
  }
  const auto [least, most] = std::minmax_element(x, x + head_dim_);
  const float steps = static_cast<float>((1 << width) - 1);
  const uint16_t scale = F32ToF16((*most - *least) / steps), minimum = F32ToF16(*least);
  add16(scale);
  add16(minimum);
  const int in_byte = 8 / width, bytes = head_dim_ / in_byte;
  for (int i = 0; i < bytes; ++i) {
    int byte = 0;
    for (int part = 0; part < in_byte; ++part) {
      const float steps_up = (x[part * bytes + i] - F16ToF32(minimum)) / F16ToF32(scale);
      byte |= static_cast<int>(std::clamp(std::rint(steps_up), 0.0f, steps)) << (part * width);
    }
    bytes_.push_back(static_cast<uint8_t>(byte));
  }
}

void InlineTokens::Add(int width, bool is_gone, const float* k, const float* v) {
  const auto tag = static_cast<uint8_t>(is_gone ? width | kGone : width);
  if (layout_ == MixedLayout::kStream) bytes_.push_back(tag);
  if (layout_ == MixedLayout::kSlots) tags_.push_back(tag);
  if (layout_ == MixedLayout::kIndexed && !is_gone) {
    places_.push_back(static_cast<uint32_t>(bytes_.size()) << kTagBits |
                      static_cast<uint32_t>(width));
  }
  AddRecord(width, k);
  AddRecord(width, v);
  if (layout_ == MixedLayout::kSlots) {
    bytes_.resize(tags_.size() * static_cast<size_t>(RecordBytes(16, head_dim_)));
  }
}

template <typename Visit>
void InlineTokens::ForEach(const Visit& visit) const {
  switch (layout_) {
    case MixedLayout::kIndexed:
      for (const uint32_t place : places_) {
        visit(static_cast<int>(place & ((1u << kTagBits) - 1)), place >> kTagBits);
      }
      return;
    case MixedLayout::kSlots:
      for (size_t t = 0; t < tags_.size(); ++t) {
        if ((tags_[t] & kGone) != 0) continue;
        visit(int{tags_[t]}, t * static_cast<size_t>(RecordBytes(16, head_dim_)));
      }
      return;
    default:
      for (size_t at = 0; at < bytes_.size();) {
        const uint8_t tag = bytes_[at++];
        if ((tag & kGone) == 0) visit(int{tag}, at);
        at += static_cast<size_t>(RecordBytes(tag & ~kGone, head_dim_));
      }
  }
}

void InlineTokens::Attend(const float* q, int rows, float scale, float* out) const {
  float k[kMaxHeadDim], v[kMaxHeadDim];
  Softmax softmax(q, rows, head_dim_, scale, out);
  ForEach([&](int width, size_t at) {
    const uint8_t* const record = bytes_.data() + at;
    DecodeSide(width, record, head_dim_, k);
    DecodeSide(width, record + RecordBytes(width, head_dim_) / 2, head_dim_, v);
    softmax.Take(k, v);
  });
  softmax.Finish();
}

// Each array begins on a line of its own.
void InlineTokens::CountReads(FetchCount& count) const {
  constexpr uint64_t kTags = uint64_t{1} << 40, kPlaces = uint64_t{2} << 40;
  count.Read(kTags, std::ssize(tags_));
  count.Read(kPlaces, std::ssize(places_) * static_cast<int64_t>(sizeof(uint32_t)));
  if (layout_ == MixedLayout::kStream) {
    for (size_t at = 0; at < bytes_.size();
         at += 1 + static_cast<size_t>(RecordBytes(bytes_[at] & ~kGone, head_dim_))) {
      count.Read(at, 1);
    }
  }
  ForEach([&](int width, size_t at) { count.Read(at, RecordBytes(width, head_dim_)); });
}

std::vector<uint8_t> InlineTokens::Widths() const {
  std::vector<uint8_t> widths;
  ForEach([&](int width, size_t) { widths.push_back(static_cast<uint8_t>(width)); });
  return widths;
}

}  // namespace kvant
