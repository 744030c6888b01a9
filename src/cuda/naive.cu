// The counter-examples of naive.h at one head size.
#include "cuda/naive.h"

KVANT_KERNEL kvant_naive_scores_int4_d128(kvant::cuda::ScoreArguments args) {
  const int warp = kvant::cuda::UniformWarp();
  const kvant::cuda::NaiveScores<128> scores(args);
  KVANT_LOOP
  for (int page = warp; page < args.pages; page += kvant::cuda::kBlockWarps)
    scores.PageAtOnce(page);
}

KVANT_KERNEL kvant_scratch_scores_int4_d128(kvant::cuda::ScoreArguments args) {
  const int warp = kvant::cuda::UniformWarp();
  const kvant::cuda::NaiveScores<128> scores(args);
  KVANT_LOOP
  for (int page = warp; page < args.pages; page += kvant::cuda::kBlockWarps) {
    scores.PageByScratch(page, args.scratch + warp * kvant::cuda::kDevicePageTokens * 64);
  }
}
