// Explain: the arithmetic of a KV cache, in bytes and time, before anything is allocated.
//
// All byte figures come from the page layouts that the cache allocates, so the estimate and the
// cache cannot drift apart. Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/format.h"
#include "kvant/roofline.h"
#include "kvant/status.h"

namespace kvant {

// Every token in stored pages: no window, no sinks, whole pages. All layers and KV heads.
struct PageCost {
  double code_bytes_per_token = 0;  // or the values themselves of a float format
  double metadata_bytes_per_token = 0;
  double padding_bytes_per_token = 0;
  double bytes_per_token = 0;  // the sum
  int64_t bytes = 0;           // of the tokens that each layer holds, all sequences
  int64_t read_bytes = 0;      // by a decode step: of layers with a window no more than that
  double effective_bits = 0;   // bits a value
  double stream_ms = 0;        // reading `read_bytes` once
};

// What the cache holds for a batch of sequences of the context's length, in bytes.
struct HeldBytes {
  int64_t code_bytes = 0;
  int64_t metadata_bytes = 0;
  int64_t padding_bytes = 0;
  int64_t window_bytes =
      0;  // pages held as written: the open one, the window and one to cut back to
  int64_t sink_bytes = 0;
  int64_t kv_bytes = 0;  // the sum
  double effective_bits = 0;
  int64_t read_bytes = 0;  // that one decode step reads
};

// What one part that is kept as written adds to the stored pages.
struct KeptTokens {
  int64_t tokens = 0;  // of one sequence, read as written
  int64_t bytes = 0;
  int64_t added_bytes = 0;  // `bytes` less what stored pages would take for the same tokens
};

struct KvExplanation {
  KvGeometry geometry;
  KvSpec spec;
  std::vector<int64_t> layer_windows;  // as given
  int64_t context_tokens = 0;
  int64_t batch = 0;
  int page_tokens = 0;
  Device device;

  PageCost f16;
  PageCost kv;
  double ratio = 0;  // f16.bytes_per_token / kv.bytes_per_token

  HeldBytes ledger;  // of `kv` with its window and sinks
  KeptTokens window;
  KeptTokens sinks;
  double ledger_stream_ms = 0;  // reading ledger.read_bytes once

  double flops = 0;           // products and sums of one decode step's attention, all sequences
  double flops_per_byte = 0;  // of kv.read_bytes
  double compute_ms = 0;      // flops at the device's matrix rate; 0 if that is unknown
  bool fits = true;           // ledger.kv_bytes within the device's memory (weights not counted)
  std::string bound;          // the limit that holds: "memory bandwidth", "matrix arithmetic" or
                              // "memory capacity"
};

// layer_windows: [layers] how many of the newest tokens each layer sees, 0: all; empty: all see
// all. Layers hold the pages of what they see and one page more. Fails as CheckKvSpec does, or with
// kInvalidArgument for a context outside [1, 2^31) tokens, a batch outside [1, 2^20] or windows of
// another number of layers.
Result<KvExplanation> ExplainKv(const KvGeometry& geometry, const KvSpec& spec,
                                int64_t context_tokens, int64_t batch, const Device& device,
                                std::span<const int64_t> layer_windows = {});

// The bytes that a cache of these formats holds for `batch` sequences of `tokens` tokens.
// REQUIRES: CheckKvSpec(spec, geometry), tokens >= 1, layer_windows as above.
HeldBytes LedgerOf(const KvGeometry& geometry, const KvSpec& spec, int64_t tokens, int64_t batch,
                   std::span<const int64_t> layer_windows = {});

// What KIVI's own bookkeeping (arXiv 2402.02750) would hold of one sequence: accounting only, no
// cache stores tokens this way. K is coded in blocks of 128 tokens, so that those behind the last
// multiple of it wait in 16 bits; V is coded a token at a time, as soon as 128 newer ones exist.
struct KiviResidual {
  int64_t k_tokens = 0;  // in 16 bits
  int64_t v_tokens = 0;
  double k_bits = 0;  // bits a value, over all tokens and layers
  double v_bits = 0;
  double mean_bits = 0;
};
inline constexpr int kKiviResidualTokens = 128;
// What is coded takes what pages of the spec's formats take, padding left out; sinks and window of
// the spec are not heeded. REQUIRES: CheckKvSpec(spec, geometry), tokens >= 1.
KiviResidual ResidualOfKivi(const KvGeometry& geometry, const KvSpec& spec, int64_t tokens);

// Stored bytes of one token in all layers and heads, whole pages.
// REQUIRES: CheckKvSpec(spec, geometry).
double PageBytesPerToken(const KvGeometry& geometry, const KvSpec& spec);

// One group of values coded under one convention.
struct GroupExample {
  Format format;
  double min = 0, max = 0;
  double exact_scale = 0;      // before it is rounded to f16
  double scale = 0;            // as stored
  double zero = 0;             // the stored integer zero, real zero or minimum; 0 if symmetric
  std::vector<int> codes;      // as stored, 0 .. 2^bits - 1
  std::vector<uint8_t> bytes;  // the codes in order, the first in the lowest bits
  std::vector<double> decoded;
  std::vector<double> errors;  // decoded - value
  double max_error = 0;        // largest magnitude
  double mean_squared_error = 0;
};

// Codes the values as one group of `bits` bits. Fails as EncodeGroup does, or with kInvalidArgument
// for an impossible width.
Result<GroupExample> ExplainGroup(std::span<const float> values, int bits, Offset offset);

}  // namespace kvant
