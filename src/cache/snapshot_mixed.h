// The tokens of several widths in a snapshot (cache/snapshot.h): what its header tells of them.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/byte_cursor.h"
#include "base/byte_writer.h"
#include "format/layer_layouts.h"
#include "kvant/mixed_spec.h"
#include "kvant/status.h"

namespace kvant {

struct SnapshotHeader;

// As HeadPool of cache/mixed_head.h.
struct SavedPool {
  int64_t tokens = 0, coded_tokens = 0;
  int64_t tokens_before = 0, coded_before = 0;  // equal to them where nothing can be undone
  bool has_spare = false;

  int64_t coded_pages() const { return (coded_tokens + kPageTokens - 1) / kPageTokens; }
  int64_t tail_tokens() const { return tokens - coded_tokens; }
  int64_t pages_as_written() const { return (tail_tokens() > 0 ? 1 : 0) + (has_spare ? 1 : 0); }
};

// As MixedHead, with how many pages its tokens are of.
struct SavedMixedHead {
  int32_t sealed = 0;
  bool can_undo = false;
  int64_t requantised_tokens = 0, dropped_tokens = 0, dropped_before = 0;
  std::vector<SavedPool> pools = {};  // as in SavedWidths
};

struct SavedWidths {
  std::vector<MixedPool> pools;  // empty: all tokens of a layer have one width
  bool once = false;
  int64_t budget_bytes = 0;
  std::string policy;                      // its name with its numbers
  int sums = 0;                            // of attention, a token; 0: the policy asks for none
  std::vector<int> first_head = {};        // [layers] into heads; -1: the layer has one width
  std::vector<SavedMixedHead> heads = {};  // [layers of several widths][kv_heads]

  bool empty() const { return pools.empty(); }
  bool is_mixed(int layer) const { return !empty() && first_head[static_cast<size_t>(layer)] >= 0; }
  const SavedMixedHead& HeadOf(int layer, int kv_head) const {
    return heads[static_cast<size_t>(first_head[static_cast<size_t>(layer)] + kv_head)];
  }
};

// with_sums: whether `sums` is told, or is 0.
void WriteWidths(const SavedWidths& widths, bool with_sums, ByteWriter* writer);
// kCorrupt. Formats are checked, counts are not.
Status ReadWidths(const KvGeometry& geometry, bool with_sums, ByteCursor* cursor,
                  SavedWidths* widths);

// Whether the counts of every head fit each other and the length; kCorrupt names layer and head.
Status CheckWidths(const SnapshotHeader& header);

// Of the layers' heads: positions, coded pages, tails and spare tails of all pools, one after
// another, and the sums of attention. open: the layer's.
int64_t PooledBytes(const SnapshotHeader& header, int layer, int kv_head, const PageLayout& open);
// Whether positions are possible and each stands once, and sums are finite and not negative. bytes:
// of a layer's section.
Status CheckPooled(const SnapshotHeader& header, int layer, std::span<const std::byte> bytes);

}  // namespace kvant
