// The first product of the tensor-core kernels alone, to be metered: a decode kernel's loop up to
// its softmax, by the same template. Nobody else runs them.
#include "cuda/decode_mma.h"

namespace kvant::cuda {

// args.partial_out: scores in base 2, [pages][64 tokens][heads]. One block, one row.
template <PageCode kPage, int kColumnTiles>
KVANT_DEVICE void ScorePages(const DecodeArguments& args) {
  constexpr int kDim = 128;
  using Codes = CodesOf<kPage>;
  using Warp = MmaDecode<Codes, kDim, kColumnTiles>;
  KVANT_SHARED(uint32_t, words, Warp::kSharedWords);
  Warp::StoreShared(args, words);
  SyncThreads();
  const Split split = Split::Of(args);
  const float scale = args.score_scale, high_scale = scale / Warp::K::kRowWeight;
  const int warp = UniformWarp();
  Warp decode(args, words, nullptr);  // no levels
  float* out = args.partial_out + decode.g * Warp::kHeads + 2 * decode.t;
  KVANT_LOOP
  for (int page = split.first_page + warp; page < split.end_page; page += kBlockWarps) {
    const StoredPage stored = StoredPage::Of<kPage, kDim>(args, split, page);
    float offset[kColumnTiles][2] = {};
    decode.Score(stored, offset);
    KVANT_UNROLL
    for (int block = 0; block < kTokenBlocks; ++block) {
      KVANT_UNROLL
      for (int n = 0; n < kColumnTiles; ++n) {
        KVANT_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int token = page * kDevicePageTokens + block * 16 + i / 2 * 8;
          out[token * Warp::kHeads + 8 * n + i % 2] = Fma(
              decode.scores[block][n].at[i], i < 2 ? scale : high_scale, offset[n][i % 2] * scale);
        }
      }
    }
  }
}

}  // namespace kvant::cuda

// heads up to 8 and 16; of int4 and int2
#define KVANT_SCORE_KERNELS(X)                \
  X(kvant_scores_int4_d128_g8, kInt4Page, 1)  \
  X(kvant_scores_int4_d128_g16, kInt4Page, 2) \
  X(kvant_scores_int2_d128_g8, kInt2Page, 1)  \
  X(kvant_scores_int2_d128_g16, kInt2Page, 2)
#define KVANT_DEFINE_SCORE_KERNEL(name, page, column_tiles)         \
  KVANT_KERNEL name(kvant::cuda::DecodeArguments args) {            \
    kvant::cuda::ScorePages<kvant::cuda::page, column_tiles>(args); \
  }
KVANT_SCORE_KERNELS(KVANT_DEFINE_SCORE_KERNEL)
