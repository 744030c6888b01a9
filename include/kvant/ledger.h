// CacheLedger: what a cache holds and costs right now.
#pragma once

#include <cstdint>
#include <vector>

namespace kvant {

// The tokens of one width in layers of several widths, each counted once a layer and KV head.
struct WidthLedger {
  int width = 0;
  int64_t head_tokens = 0;
  int64_t page_bytes = 0;  // of coded pages; shared ones once
};

// In bytes, unless the name says otherwise. All sequences of the cache, shared pages counted once.
struct CacheLedger {
  int64_t code_bytes = 0;      // codes (or values of float formats) of stored pages
  int64_t metadata_bytes = 0;  // scales and offsets of stored pages
  int64_t padding_bytes = 0;   // of stored pages
  int64_t window_bytes = 0;    // open and window pages, whole pages
  int64_t sink_bytes = 0;
  int64_t kv_bytes = 0;         // the sum of the above
  int64_t allocated_bytes = 0;  // what the pools asked of the system
  int64_t stored_tokens = 0;    // sequence tokens that came to stored pages, sinks left out
  int64_t tokens = 0;           // sum of sequence lengths
  int64_t recoded_tokens = 0;   // coded a second time, by all shifts so far (Session::Shift)
  // Layers of several widths, wider first. Their metadata_bytes hold each token's position and what
  // its policy sums up of attention, which are not part of allocated_bytes; pages that are not full
  // yet are in window_bytes.
  std::vector<WidthLedger> widths;
  int64_t dropped_head_tokens = 0;      // by the policy, of sequences that are held
  int64_t requantised_head_tokens = 0;  // coded again with fewer bits, from decoded values
  // 8 * kv_bytes / values: two a channel of the tokens whose pages a layer still holds. Layers that
  // see only their newest tokens give back the pages of the others. Tokens that a policy dropped
  // count.
  double effective_bits = 0;
};

}  // namespace kvant
