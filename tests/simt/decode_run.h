// Runs a decode kernel, and the merge behind it, over a DecodeWorld.
#pragma once

#include <functional>

#include "simt/decode_bound.h"
#include "simt/kernels.h"
#include "simt/simt.h"

namespace kvant::simt {

struct Decoded {
  std::vector<float> out;  // [kRows][heads][dim]
  std::string fault;
  std::vector<float> partial_out = {}, partial_state = {};  // as DecodeArguments has them
};

inline constexpr int kSplits = 2;

using DecodeThread = std::function<void(const cuda::DecodeArguments&)>;

inline Decoded Decode(const DecodeThread& thread, const DecodeWorld& world,
                      const LaunchOptions& launch) {
  const size_t heads = static_cast<size_t>(DecodeWorld::kRows * world.heads);
  const size_t dim = static_cast<size_t>(world.dim);
  Decoded run{std::vector<float>(heads * dim, NAN), "",
              std::vector<float>(heads * kSplits * dim, NAN),
              std::vector<float>(heads * kSplits * 2, NAN)};
  const cuda::DecodeArguments args{
      .payload = reinterpret_cast<const unsigned char*>(world.payload.data()),
      .metadata = reinterpret_cast<const unsigned char*>(world.metadata.data()),
      .page_table = world.table.data(),
      .ranges = world.ranges.data(),
      .queries = world.queries.data(),
      .partial_out = run.partial_out.data(),
      .partial_state = run.partial_state.data(),
      .page_table_stride = world.pages,
      .group_ratio = world.heads,
      .slots = kSplits,
      .first_slot = 0,
      .pages_per_split = (world.pages + kSplits - 1) / kSplits,
      .score_scale = world.score_scale,
      .levels = world.levels.halves.data(),
      .level_unit = world.levels.unit};
  LaunchOptions options = launch;
  options.grid_x = kSplits;
  options.grid_y = DecodeWorld::kRows;
  run.fault = Launch(options, [&] { thread(args); });
  if (!run.fault.empty()) return run;
  options = {};
  options.grid_x = world.heads;
  options.grid_y = DecodeWorld::kRows;
  const cuda::MergeArguments merge{.partial_out = run.partial_out.data(),
                                   .partial_state = run.partial_state.data(),
                                   .out = run.out.data(),
                                   .group_ratio = world.heads,
                                   .slots = kSplits,
                                   .head_dim = world.dim};
  run.fault = Launch(options, [&] { kvant_merge(merge); });
  return run;
}

// Edges inside pages, a split of one page, pages in front that nobody sees.
inline const std::vector<cuda::TokenRange> kRanges = {{5, 257}, {130, 191}};

}  // namespace kvant::simt
