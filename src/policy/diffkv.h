// DiffKV (arXiv 2412.03131): tokens of high, of low precision, and none, by what attention gave
// them beside the average 1/n.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <optional>

namespace kvant {

// In units of the average attention; prune <= low.
struct DiffKvThresholds {
  double prune = 0.02;
  double low = 1.0;
};

// Width of a token with a score (policy/mass_score.h) in a sequence of n tokens.
int DiffKvWidth(const DiffKvThresholds& thresholds, double score, int64_t n, int high_width,
                int low_width);

// What happens when a token leaves the window during decoding. It always comes to the high pool;
// the question is whose place it takes. A victim is the lowest score of a pool among tokens that a
// whole window of queries has seen.
enum class DiffKvStep {
  kReplaceHigh,    // the high victim is dropped, the new token takes its place
  kDemoteOverLow,  // the low victim is dropped, the high victim takes its place in low precision
  kDemoteToNew,    // the high victim gets a new place in the low pool
  kAppend,         // the new token gets a new place in the high pool
};
// position: of the newest token; thresholds are fractions of 1 / position. A pool without a victim
// has none to give. REQUIRES: position > 0.
DiffKvStep ChooseDiffKvStep(const DiffKvThresholds& thresholds, std::optional<double> high_victim,
                            std::optional<double> low_victim, int64_t position);

// How one page size serves both pools: a page holds, of each token, codes and f16 scale + minimum
// of every group of K, the same of V, an f32 score and an i32 position. Metadata begins at
// multiples of 32 bytes, V at one of 128, and V has room for an even number of tokens.
struct DiffKvPage {
  int k_bits = 8, v_bits = 4;
  int k_groups = 1, v_groups = 1;
  int head_dim = 128;

  int64_t token_bytes() const;
  // Bits a value with everything that belongs to a token.
  double bits() const;
  // The most tokens whose page fits in that many bytes.
  int64_t PageTokens(int64_t page_bytes) const;
};
inline constexpr int64_t kDiffKvPageBytes = 6784;

}  // namespace kvant
