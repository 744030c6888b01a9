// What it costs to mix widths inside one run of tokens, against pools of one width each. The same
// tokens are kept both ways and attended by one decode step, timed without a model.
//
// In line, widths make four things worse; each has figures of its own:
//   addressing   where a token lies depends on the widths of all before it: it is found by walking
//                (kStream), from a list of places (kIndexed), or since all have the room of the
//                widest (kSlots)
//   divergence   neighbours take different ways through the code: `widths_in_32`, and the time over
//                what the same reader needs for tokens of one width each
//   sector waste bytes that are fetched since they lie in a line with others: `line_bytes` and
//                `sector_bytes` over `useful_bytes`
//   eviction     tokens that go leave holes, and what is left is gathered; pools move up
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "kvant/format.h"
#include "kvant/status.h"

namespace kvant {

inline constexpr std::array<int, 4> kMixedBenchWidths = {16, 8, 4, 2};

struct MixedBenchOptions {
  KvGeometry geometry;          // head_dim a multiple of 16, at most 256
  int64_t depth_tokens = 8192;  // cached, sinks and window among them
  // Of the tokens between sinks and window, of widths 16, 8, 4 and 2; only their ratio counts.
  std::array<double, 4> shares = {1, 3, 6, 6};
  double evicted_share = 0.5;  // of the tokens that are older than 256, for the rows with evictions
  int threads = 1;
  int repetitions = 15;
  uint64_t seed = 0;
};

enum class MixedLayout {
  kPools,    // the cache, read by the kernels of its formats
  kStream,   // in line: a tag and a record a token, one behind the other
  kIndexed,  // in line: records, and a list of places and widths
  kSlots,    // in line: records in slots of the widest, and a list of widths
};

// One way to hold the tokens. A repetition is one step: every layer and KV head. The readers in
// line are plain C++, so their times compare with each other only.
struct MixedBenchRow {
  MixedLayout layout = MixedLayout::kPools;
  int width = 0;                       // of all tokens but sinks and open pages; 0: mixed
  bool is_evicted = false;             // some tokens have gone
  int64_t head_tokens = 0;             // that the step reads, of all heads
  int64_t useful_bytes = 0;            // codes and metadata of those tokens
  int64_t line_bytes = 0;              // distinct lines of 64 bytes that are touched
  int64_t sector_bytes = 0;            // distinct sectors of 32 bytes, as GPUs fetch them
  double widths_in_32 = 0;             // of 32 tokens that are read one after another
  std::vector<int64_t> samples_ns;     // by repetition, in which the rows take turns
  std::vector<double> over_one_width;  // mixed: by repetition, the time over what its bytes of
                                       // each width take where all tokens have that width
  double answer_difference = 0;        // largest |output - output of the pools|, mixed rows only
};

// First kPools and kStream of one width each, then every layout mixed, then every layout with
// evictions. `progress` may be left out. kInvalidArgument for impossible options; fails as
// Cache::Create and IsaStatus do.
// Thread rules: one call at a time, nothing else of kvant running.
Result<std::vector<MixedBenchRow>> BenchMixed(
    const MixedBenchOptions& options, const std::function<void(double done)>& progress = {});

}  // namespace kvant
