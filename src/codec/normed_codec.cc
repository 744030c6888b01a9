#include "codec/normed_codec.h"

#include <cstring>

#include "base/float16.h"
#include "codec/code_place.h"
#include "codec/codec_level.h"

namespace kvant {
namespace {

NormedPlan PlanOf(const SideLayout& open, const SideLayout& s) {
  NormedPlan plan;
  static_cast<SideShape&>(plan) = ShapeOf(s);
  plan.source_type = open.format.float_type;
  plan.block_tokens = s.block_tokens;
  plan.head_dim = s.head_dim;
  plan.padded_dim = s.padded_dim;
  plan.source_block_bytes = open.block_bytes;
  plan.table = EncodeTableOf(s);
  for (PlanePlan& plane : plan.planes) plane.first_bit += plan.table.bits - s.format.bits;
  plan.page_mean = s.format.page_mean;
  plan.norms_8bit = s.format.norms_8bit;
  plan.norms_offset = s.norms_offset;
  plan.mean_offset = s.mean_offset;
  plan.parameters_offset = s.parameters_offset;
  plan.parameter_count = s.parameter_count();
  return plan;
}

float LoadHalf(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return F16ToF32(half);
}

// Norm and mean of one side as a decoder sees them.
class Metadata {
 public:
  Metadata(const SideLayout& s, const std::byte* stored) : s_(s), stored_(stored) {}

  float Norm(int token) const {
    if (!s_.format.norms_8bit) return LoadHalf(stored_ + s_.norms_offset + 2 * token);
    const std::byte* parameters = ParametersOf(token) + (s_.format.page_mean ? 2 : 0);
    const auto code = static_cast<float>(stored_[s_.norms_offset + token]);
    return LoadHalf(parameters) + code * LoadHalf(parameters + 2);
  }
  float Mean(int token, int channel) const {
    if (!s_.format.page_mean) return 0.0f;
    const int at = s_.mean_offset + token / s_.block_tokens * s_.padded_dim + channel;
    return static_cast<float>(static_cast<int8_t>(stored_[at])) * LoadHalf(ParametersOf(token));
  }

 private:
  const std::byte* ParametersOf(int token) const {
    return stored_ + s_.parameters_offset + token / s_.block_tokens * s_.parameter_count() * 2;
  }
  const SideLayout& s_;
  const std::byte* stored_;
};

// The codes that follow a code in its chain make the window: normed_plan.h.
int WindowAt(const SideLayout& s, const LevelTable& table, const std::byte* stored, int token,
             int channel) {
  const int rows = s.reduce(), in_byte = rows / 4;
  const int block = token / s.block_tokens * s.block_tokens;
  const int row = s.side == Side::kK ? channel : token - block;
  int n = row % 4 * in_byte + row / 16 * 4 + row % 16 / 4;
  int window = 0;
  for (int bit = 0; bit < table.window_bits && n < rows; bit += table.bits, ++n) {
    const int at = n % in_byte / 4 * 16 + n % 4 * 4 + n / in_byte;
    const int code = s.side == Side::kK ? LoadCode(s, stored, token, at)
                                        : LoadCode(s, stored, block + at, channel);
    window |= code << bit;
  }
  return window & ((1 << table.window_bits) - 1);
}

}  // namespace

void EncodeNormedSide(const SideLayout& open, const std::byte* source, const SideLayout& layout,
                      int first_token, std::byte* stored) {
  if (open.format != kFormatF16) {
    EncodeNormedSideScalar(open, source, layout, first_token, stored);
    return;
  }
  std::memset(stored, 0, static_cast<size_t>(layout.bytes));
  ActiveCodecLevel().encode_normed(PlanOf(open, layout), source, first_token, stored);
}

void EncodeNormedSideScalar(const SideLayout& open, const std::byte* source,
                            const SideLayout& layout, int first_token, std::byte* stored) {
  std::memset(stored, 0, static_cast<size_t>(layout.bytes));
  EncodeNormedScalar(PlanOf(open, layout), source, first_token, stored);
}

void DecodeNormedSide(const SideLayout& s, const std::byte* stored, float* out,
                      int64_t out_stride) {
  const LevelTable& table = LevelTableOf(s);
  const Metadata metadata(s, stored);
  for (int t = 0; t < s.tokens; ++t) {
    const float scale = metadata.Norm(t) * (1.0f / table.sigma);
    for (int c = 0; c < s.head_dim; ++c) {
      const auto level = static_cast<float>(table.levels[WindowAt(s, table, stored, t, c)]);
      out[t * out_stride + c] = scale * level + metadata.Mean(t, c);
    }
  }
}

}  // namespace kvant
