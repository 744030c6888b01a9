// The metered score kernels compute scores: exactly, since every number in them is a small integer.
#include "sass/scores.cu"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/float16.h"
#include "codec/test_pages.h"
#include "cuda/device_page.h"

namespace kvant::simt {
namespace {

constexpr int kDim = 128, kPages = 5, kTokens = kPages * cuda::kDevicePageTokens;

struct Pages {
  std::vector<unsigned char> payload, metadata;
  std::vector<float> queries;
  cuda::PageCode code;

  // Random codes; scales of 1 and 2, offsets of -3 .. 4, queries of -4, 0 and 4, since int2 takes a
  // fourth of some.
  Pages(cuda::PageCode page_code, int heads) : code(page_code) {
    payload.resize(static_cast<size_t>(kPages * cuda::PagePayloadBytes(code, kDim)));
    metadata.resize(static_cast<size_t>(kPages * cuda::PageMetadataBytes(code, kDim)));
    for (size_t i = 0; i < payload.size(); ++i) {
      payload[i] = static_cast<unsigned char>(256 * MixUnit(i));
    }
    for (int page = 0; page < kPages; ++page) {
      for (int c = 0; c < kDim; ++c) {
        StoreHalf(page, cuda::PairOrder(kDim / 16, c) * 2, Scale(page, c));
        StoreHalf(page, cuda::KOffsetsByte(kDim) + cuda::OffsetOrder(kDim / 16, c) * 2,
                  Offset(page, c));
      }
    }
    for (int i = 0; i < heads * kDim; ++i) {
      queries.push_back(static_cast<float>(4 * (i * 7 % 3 - 1)));
    }
  }

  static float Scale(int page, int c) { return static_cast<float>(1 + (page + c) % 2); }
  static float Offset(int page, int c) { return static_cast<float>((5 * page + 3 * c) % 8 - 3); }
  void StoreHalf(int page, int byte, float value) {
    const uint16_t half = F32ToF16(value);
    std::memcpy(metadata.data() + page * cuda::PageMetadataBytes(code, kDim) + byte, &half, 2);
  }
  float Score(int token, int head) const {
    float sum = 0;
    const int page = token / 64;
    for (int c = 0; c < kDim; ++c) {
      const int bit = cuda::BitOf(true, code.k, kDim, token % 64, c);
      const int byte =
          payload[static_cast<size_t>(page * cuda::PagePayloadBytes(code, kDim) + bit / 8)];
      const int mask = (1 << cuda::BitsOf(code.k)) - 1;
      const auto value = static_cast<float>(byte >> (bit % 8) & mask);
      sum += queries[static_cast<size_t>(head * kDim + c)] *
             (value * Scale(page, c) + Offset(page, c));
    }
    return sum;
  }
};

void ExpectExactScores(void (*kernel)(cuda::DecodeArguments), cuda::PageCode page,
                       int column_tiles) {
  const int heads = 8 * column_tiles;
  const Pages pages(page, heads);
  const std::vector<uint32_t> table = {0, 1, 2, 3, 4};
  const cuda::TokenRange range = {0, kTokens};
  std::vector<float> scores(static_cast<size_t>(kTokens * heads), -1.0f);
  const cuda::DecodeArguments args{.payload = pages.payload.data(),
                                   .metadata = pages.metadata.data(),
                                   .page_table = table.data(),
                                   .ranges = &range,
                                   .queries = pages.queries.data(),
                                   .partial_out = scores.data(),
                                   .partial_state = nullptr,
                                   .page_table_stride = kPages,
                                   .group_ratio = heads,
                                   .slots = 1,
                                   .first_slot = 0,
                                   .pages_per_split = kPages,
                                   .score_scale = 1};
  ASSERT_EQ(Launch({}, [&] { kernel(args); }), "");
  for (int i = 0; i < kTokens * heads; ++i) {
    ASSERT_EQ(scores[static_cast<size_t>(i)], pages.Score(i / heads, i % heads)) << i;
  }
}

TEST(ScoreKernels, GiveExactScores) {
#define KVANT_EXPECT_SCORES(name, page, column_tiles) \
  ExpectExactScores(name, cuda::page, column_tiles);
  KVANT_SCORE_KERNELS(KVANT_EXPECT_SCORES)
}

}  // namespace
}  // namespace kvant::simt
