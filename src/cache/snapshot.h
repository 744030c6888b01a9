// Snapshot: one sequence of a cache as bytes, from which a cache of the same shape and formats goes
// on as if nothing had happened. Little-endian, version 1, or 2 where tokens have several widths,
// or 3 of multi-head latent attention, or 4 of several widths whose policy sums up attention;
// each section ends with the u64 XXH64 of its bytes:
//
//   header     "kvantseq"  u32 version  u32 version of the page layout  u64 bytes of the header, of
//              its hash not counted
//              u64 model hash  u64 calibration hash  i32 layers, KV heads, head_dim, q heads
//              version 3: i32 channels of the latent (KvGeometry::latent_dim)
//              i32 sinks, window, tokens of a page  i64 length  u64 tokens  u64 bytes of the state
//              per layer two strings (u64 length, bytes), the formats of K and V, i64 tokens that
//              its queries see (0: all), and i32 first and end of its stored pages, then of its
//              open pages
//              versions 2 and 4: u32 pools, of each i32 width and two strings; u8 once, i64
//              budget, the policy's name as a string, in version 4 i32 sums of attention a token;
//              per layer u8 whether it has several widths; per KV head
//              of those i32 pages that came, u8 whether the newest can go again, i64 tokens that
//              were requantised, that were dropped, and before the newest page, and per pool i64
//              tokens, coded ones, both before the newest page, u8 whether it has a spare tail
//   tokens     i32 ids: as many as the length, or none
//   state      bytes of the caller
//   per layer  per KV head its sink page (unless page 0 is gone), its stored pages and its open
//              pages, as they lie in memory (format/page_layout.h); what an open or sink page has
//              not been given is 0. Of several widths, in the place of stored pages: per pool i32
//              positions, coded pages, tail and spare tail where there are any; what no token has
//              is 0; in version 4 then f32 sums of attention [sums a token][tokens], which are
//              sinks, those of the pools and those of open pages (cache/head_mass.h)
//
// The same sequence gives the same bytes on every host. Checksums tell damage, not intent: a page
// may hold any codes, and kernels are safe for all of them.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/snapshot_mixed.h"
#include "kvant/format.h"
#include "kvant/status.h"

namespace kvant {

struct PageRange {
  int first = 0, end = 0;
  int count() const { return end - first; }
  bool operator==(const PageRange&) const = default;
};

struct SnapshotHeader {
  uint64_t model_hash = 0;        // 0: keys and values of no model
  uint64_t calibration_hash = 0;  // 0: no format reads one
  KvGeometry geometry;
  KvSpec kv;  // formats in `layers`, one a layer; without calibration
  int page_tokens = 0;
  int64_t length = 0;            // tokens
  std::vector<int64_t> windows;  // [layers] tokens that a query sees; 0: all
  std::vector<PageRange> stored,
      open;  // [layers]; of several widths stored ones are pages that came
  SavedWidths widths;

  // Sinks go with page 0.
  bool HoldsSinks(int layer) const {
    const auto at = static_cast<size_t>(layer);
    return length > 0 && (stored[at].end > 0 ? stored[at].first : open[at].first) == 0;
  }
};

// What a cache does not know of a sequence.
struct SnapshotLabel {
  uint64_t model_hash = 0;
  std::span<const int32_t> tokens = {};   // [length], or empty
  std::span<const std::byte> state = {};  // whatever the caller needs to go on
};

// The parts of a snapshot that holds what it claims. Spans point into the bytes it was made of.
struct Snapshot {
  SnapshotHeader header;
  std::vector<int32_t> tokens;
  std::span<const std::byte> state;
  std::vector<std::span<const std::byte>> pages;  // [layers]
};

// Whether the bytes begin as a snapshot does.
bool IsSnapshot(std::span<const std::byte> bytes);

// Checks everything that does not depend on a cache: version, sizes, formats, that each layer has
// the pages it goes on with (format/page_rule.h), every checksum, and that of several widths each
// position stands once and sums of attention are sums. kCorrupt, or kUnsupported for another
// version, with what is wrong.
Result<Snapshot> ParseSnapshot(std::span<const std::byte> bytes);

// For Cache::Save: all of the file up to the first page.
std::vector<std::byte> SnapshotFront(const SnapshotHeader& header, const SnapshotLabel& label);

}  // namespace kvant
