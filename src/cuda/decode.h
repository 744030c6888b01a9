// DecodeKernel: the frame that both ways of decoding share. A block takes one split of one row, its
// warps take pages in turn, and leave one partial state.
#pragma once

#include "cuda/codes.h"
#include "cuda/split.h"

namespace kvant::cuda {

// The table of levels in shared memory, to be read behind a barrier; null where no side needs it.
template <PageCode kPage>
KVANT_DEVICE const uint32_t* StoreLevels([[maybe_unused]] const DecodeArguments& args) {
  if constexpr (kPage.k == SideCode::kLevels4 || kPage.v == SideCode::kLevels4) {
    using Table = PairTable<kPairCopies>;
    KVANT_SHARED(uint32_t, table, Table::kWords);
    Table::Store(args.levels, table);
    return table;
  } else {
    return nullptr;
  }
}

template <template <typename, int, int> class Decode, typename Codes, int kDim, int kHeadsOrTiles>
KVANT_DEVICE void DecodeRow(const DecodeArguments& args) {
  using Warp = Decode<Codes, kDim, kHeadsOrTiles>;
  constexpr int kHeads = Warp::kHeads;
  KVANT_SHARED(uint32_t, words, Warp::kSharedWords);
  KVANT_SHARED(float, max, kBlockWarps* kHeads);
  KVANT_SHARED(float, sum, kBlockWarps* kHeads);
  KVANT_SHARED(float, out, kHeads* kDim);
  const BlockState<kHeads, kDim> block{max, sum, out};

  Warp::StoreShared(args, words);
  const uint32_t* levels = StoreLevels<Codes::kPage>(args);
  SyncThreads();
  const Split split = Split::Of(args);
  const int warp = UniformWarp();
  Warp decode(args, words, levels);
  KVANT_LOOP
  for (int page = split.first_page + warp; page < split.end_page; page += kBlockWarps) {
    decode.AddPage(split, page);
  }
  decode.Finish();
  decode.StoreState(block, warp);
  SyncThreads();
  KVANT_LOOP
  for (int turn = 0; turn < kBlockWarps; ++turn) {
    if (warp == turn) decode.AddTo(block, warp, turn == 0);
    SyncThreads();
  }
  block.Write(args);
}

}  // namespace kvant::cuda
