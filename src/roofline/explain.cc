#include "kvant/explain.h"

#include <algorithm>

#include "format/page_layout.h"

namespace kvant {
namespace {

constexpr int64_t kMaxContextTokens = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxBatch = int64_t{1} << 20;

int64_t ValuesPerToken(const KvGeometry& g) {
  return int64_t{2} * g.layers * g.kv_heads * g.head_dim;
}

// All layers of a cache have pages of one length.
int PageTokensOf(const KvSpec& spec, const KvGeometry& g) {
  int tokens = kPageTokens;
  for (int layer = 0; layer < g.layers; ++layer) {
    const FormatPair pair = LayerFormats(spec, layer);
    tokens = std::max(tokens, PageTokensFor(pair.k, pair.v));
  }
  return tokens;
}

bool IsFloat(const FormatPair& pair) { return pair.k.is_float() && pair.v.is_float(); }

// Where one sequence's tokens lie, in pages of page_tokens: the one precision rule of the cache,
// seen from a query in the last page.
struct Pages {
  int64_t stored = 0;  // leading pages, read in stored form
  int64_t open = 0;    // the others, read as written: the window and the page being filled
  // Open copies that are held: one page more than is read, so that a cut of a page is exact.
  int64_t held_open() const { return open + (stored > 0 ? 1 : 0); }
};
Pages SplitPages(int64_t tokens, int page_tokens, int window_tokens) {
  const int64_t last_page = (tokens - 1) / page_tokens;
  const int64_t window_pages = DivideUp(window_tokens, page_tokens);
  const int64_t stored = std::max<int64_t>(0, last_page - window_pages);
  return {stored, last_page + 1 - stored};
}

// The first token that a query at the end of `tokens` tokens sees in a layer.
int64_t FirstSeen(std::span<const int64_t> layer_windows, int layer, int64_t tokens) {
  const int64_t window = layer_windows.empty() ? 0 : layer_windows[static_cast<size_t>(layer)];
  return window == 0 ? 0 : std::max<int64_t>(0, tokens - window);
}

// Bytes of `tokens` tokens in float pages; their padding is not read.
int64_t FloatBytes(const KvGeometry& g, const FormatPair& pair, int64_t tokens) {
  return tokens * g.kv_heads * g.head_dim * (pair.k.bits + pair.v.bits) / 8;
}

PageCost CostOf(const KvGeometry& g, const KvSpec& spec, int64_t context_tokens, int64_t batch,
                const Device& device, std::span<const int64_t> layer_windows) {
  PageCost cost;
  const int page_tokens = PageTokensOf(spec, g);
  int64_t code_bytes = 0, metadata_bytes = 0, page_bytes = 0;
  double seen_bytes = 0;  // of one sequence, times page_tokens
  for (int layer = 0; layer < g.layers; ++layer) {
    const FormatPair pair = LayerFormats(spec, layer);
    const PageLayout page = MakePageLayout(pair.k, pair.v, g.head_dim, page_tokens);
    code_bytes += g.kv_heads * (page.k.code_bytes() + page.v.code_bytes());
    metadata_bytes += g.kv_heads * (page.k.used_metadata_bytes() + page.v.used_metadata_bytes());
    const int64_t layer_bytes = int64_t{g.kv_heads} * page.page_bytes;
    page_bytes += layer_bytes;
    const int64_t seen = context_tokens - FirstSeen(layer_windows, layer, context_tokens);
    seen_bytes += static_cast<double>(layer_bytes) * static_cast<double>(seen);
  }
  const auto per_token = [&](int64_t bytes) { return static_cast<double>(bytes) / page_tokens; };
  cost.code_bytes_per_token = per_token(code_bytes);
  cost.metadata_bytes_per_token = per_token(metadata_bytes);
  cost.padding_bytes_per_token = per_token(page_bytes - code_bytes - metadata_bytes);
  cost.bytes_per_token = per_token(page_bytes);
  const double tokens = static_cast<double>(context_tokens) * static_cast<double>(batch);
  cost.bytes = static_cast<int64_t>(cost.bytes_per_token * tokens);
  cost.read_bytes = static_cast<int64_t>(seen_bytes * static_cast<double>(batch) / page_tokens);
  cost.effective_bits = 8 * cost.bytes_per_token / static_cast<double>(ValuesPerToken(g));
  cost.stream_ms = 1e3 * static_cast<double>(cost.read_bytes) / device.read_bytes_per_s;
  return cost;
}

// All pages of float layers stay as they are: no window, no sinks.
void AddFloatLayer(const KvGeometry& g, const FormatPair& pair, int page_tokens, int64_t tokens,
                   int64_t first_seen, HeldBytes* held) {
  const int64_t pages = (tokens - 1) / page_tokens + 1;
  const int64_t bytes =
      pages * g.kv_heads * MakePageLayout(pair.k, pair.v, g.head_dim, page_tokens).page_bytes;
  const int64_t values = FloatBytes(g, pair, tokens);
  held->code_bytes += values;
  held->padding_bytes += bytes - values;  // the unwritten end of the last page too
  held->read_bytes += FloatBytes(g, pair, tokens - first_seen);
}

void AddCodedLayer(const KvGeometry& g, const KvSpec& spec, const FormatPair& pair, int page_tokens,
                   int64_t tokens, int64_t first_seen, HeldBytes* held) {
  const Pages pages = SplitPages(tokens, page_tokens, spec.window_tokens);
  const PageLayout stored = MakePageLayout(pair.k, pair.v, g.head_dim, page_tokens);
  const int64_t heads_pages = pages.stored * g.kv_heads;
  held->code_bytes += heads_pages * (stored.k.code_bytes() + stored.v.code_bytes());
  held->metadata_bytes +=
      heads_pages * (stored.k.used_metadata_bytes() + stored.v.used_metadata_bytes());
  held->padding_bytes += heads_pages * (stored.k.padding_bytes() + stored.v.padding_bytes());
  const FormatPair open = OpenFormats(pair);
  held->window_bytes += pages.held_open() * g.kv_heads *
                        MakePageLayout(open.k, open.v, g.head_dim, page_tokens).page_bytes;
  if (spec.sinks_tokens > 0) {
    const int sink_tokens = DivideUp(spec.sinks_tokens, kLaneBlock) * kLaneBlock;
    held->sink_bytes +=
        int64_t{g.kv_heads} * MakePageLayout(open.k, open.v, g.head_dim, sink_tokens).page_bytes;
  }
  // Sinks are read from their own page, and never twice.
  const int64_t stored_end = pages.stored * page_tokens;
  const int64_t sinks =
      std::max<int64_t>(0, std::min<int64_t>(spec.sinks_tokens, stored_end) - first_seen);
  const int64_t as_written = tokens - std::max(stored_end, first_seen) + sinks;
  const int64_t read_pages = std::max<int64_t>(0, pages.stored - first_seen / page_tokens);
  held->read_bytes += read_pages * g.kv_heads * stored.page_bytes + FloatBytes(g, open, as_written);
}

// Which tokens of a sequence are kept as written, and what they add to the stored pages.
void ExplainKept(KvExplanation* e) {
  e->window.bytes = e->ledger.window_bytes;
  e->sinks.bytes = e->ledger.sink_bytes;
  bool any_coded = false;
  for (int layer = 0; layer < e->geometry.layers && !any_coded; ++layer) {
    any_coded = !IsFloat(LayerFormats(e->spec, layer));
  }
  if (any_coded) {
    const Pages pages = SplitPages(e->context_tokens, e->page_tokens, e->spec.window_tokens);
    e->window.tokens = e->context_tokens - pages.stored * e->page_tokens;
    e->sinks.tokens = std::min<int64_t>(e->spec.sinks_tokens, e->context_tokens);
  }
  // Sinks keep their slots in page 0, so all of their page is on top. The rest of the difference
  // is the window's, with the unwritten end of the open page.
  e->sinks.added_bytes = e->sinks.bytes;
  e->window.added_bytes = e->ledger.kv_bytes - e->kv.bytes - e->sinks.bytes;
}

void FindBound(KvExplanation* e) {
  const KvGeometry& g = e->geometry;
  // Per query head and cached token that it sees: head_dim products and sums for the score, as many
  // for the weighted values.
  int64_t seen = 0;
  for (int layer = 0; layer < g.layers; ++layer) {
    seen += e->context_tokens - FirstSeen(e->layer_windows, layer, e->context_tokens);
  }
  e->flops =
      4.0 * g.q_heads * g.head_dim * static_cast<double>(seen) * static_cast<double>(e->batch);
  e->flops_per_byte = e->flops / static_cast<double>(e->kv.read_bytes);
  const Device& d = e->device;
  if (d.matrix_flops_per_s > 0) e->compute_ms = 1e3 * e->flops / d.matrix_flops_per_s;
  e->fits = d.memory_bytes == 0 || static_cast<double>(e->ledger.kv_bytes) <= d.memory_bytes;
  e->bound = !e->fits                          ? "memory capacity"
             : e->compute_ms > e->kv.stream_ms ? "matrix arithmetic"
                                               : "memory bandwidth";
}

}  // namespace

double PageBytesPerToken(const KvGeometry& geometry, const KvSpec& spec) {
  Device any;
  any.read_bytes_per_s = 1;
  return CostOf(geometry, spec, 1, 1, any, {}).bytes_per_token;
}

HeldBytes LedgerOf(const KvGeometry& geometry, const KvSpec& spec, int64_t tokens, int64_t batch,
                   std::span<const int64_t> layer_windows) {
  HeldBytes held;
  const int page_tokens = PageTokensOf(spec, geometry);
  for (int layer = 0; layer < geometry.layers; ++layer) {
    const FormatPair pair = LayerFormats(spec, layer);
    const int64_t first_seen = FirstSeen(layer_windows, layer, tokens);
    if (IsFloat(pair)) {
      AddFloatLayer(geometry, pair, page_tokens, tokens, first_seen, &held);
    } else {
      AddCodedLayer(geometry, spec, pair, page_tokens, tokens, first_seen, &held);
    }
  }
  for (int64_t* bytes : {&held.code_bytes, &held.metadata_bytes, &held.padding_bytes,
                         &held.window_bytes, &held.sink_bytes}) {
    *bytes *= batch;
    held.kv_bytes += *bytes;
  }
  held.read_bytes *= batch;
  held.effective_bits = 8.0 * static_cast<double>(held.kv_bytes) /
                        (static_cast<double>(ValuesPerToken(geometry)) *
                         static_cast<double>(tokens) * static_cast<double>(batch));
  return held;
}

KiviResidual ResidualOfKivi(const KvGeometry& geometry, const KvSpec& spec, int64_t tokens) {
  KiviResidual residual;
  residual.k_tokens = tokens % kKiviResidualTokens;
  residual.v_tokens = std::min<int64_t>(tokens, kKiviResidualTokens);
  const auto bits_of = [&](const Format& format, int64_t kept) {
    if (format.is_float()) return static_cast<double>(format.bits);
    const double share = static_cast<double>(kept) / static_cast<double>(tokens);
    return share * kFormatF16.bits + (1 - share) * format.EffectiveBits(geometry.head_dim);
  };
  for (int layer = 0; layer < geometry.layers; ++layer) {
    const FormatPair pair = LayerFormats(spec, layer);
    residual.k_bits += bits_of(pair.k, residual.k_tokens) / geometry.layers;
    residual.v_bits += bits_of(pair.v, residual.v_tokens) / geometry.layers;
  }
  residual.mean_bits = (residual.k_bits + residual.v_bits) / 2;
  return residual;
}

Result<KvExplanation> ExplainKv(const KvGeometry& geometry, const KvSpec& spec,
                                int64_t context_tokens, int64_t batch, const Device& device,
                                std::span<const int64_t> layer_windows) {
  KVANT_RETURN_IF_ERROR(CheckKvSpec(spec, geometry));
  if (!layer_windows.empty() && layer_windows.size() != static_cast<size_t>(geometry.layers)) {
    return Status::InvalidArgument("windows of " + std::to_string(layer_windows.size()) +
                                   " layers for a model of " + std::to_string(geometry.layers));
  }
  if (context_tokens < 1 || context_tokens > kMaxContextTokens) {
    return Status::InvalidArgument("a context of " + std::to_string(context_tokens) +
                                   " tokens is not between 1 and 2147483647");
  }
  if (batch < 1 || batch > kMaxBatch) {
    return Status::InvalidArgument("a batch of " + std::to_string(batch) +
                                   " sequences is not between 1 and 1048576");
  }
  // No cache is larger than f32 values of padded heads, with a window and open page on top.
  const double most_bytes = 4.0 * static_cast<double>(ValuesPerToken(geometry)) *
                            PaddedDim(geometry.head_dim) / geometry.head_dim *
                            (static_cast<double>(context_tokens) + spec.window_tokens + 1024) *
                            static_cast<double>(batch);
  if (most_bytes > 4e18) {
    return Status::InvalidArgument(std::to_string(batch) + " sequences of " +
                                   std::to_string(context_tokens) +
                                   " tokens are more bytes than 64 bits can count");
  }
  KvExplanation e;
  e.geometry = geometry;
  e.spec = spec;
  e.layer_windows.assign(layer_windows.begin(), layer_windows.end());
  e.context_tokens = context_tokens;
  e.batch = batch;
  e.page_tokens = PageTokensOf(spec, geometry);
  e.device = device;
  e.f16 = CostOf(geometry, KvSpec{}, context_tokens, batch, device, layer_windows);
  e.kv = CostOf(geometry, spec, context_tokens, batch, device, layer_windows);
  e.ratio = e.f16.bytes_per_token / e.kv.bytes_per_token;
  e.ledger = LedgerOf(geometry, spec, context_tokens, batch, layer_windows);
  e.ledger_stream_ms = 1e3 * static_cast<double>(e.ledger.read_bytes) / device.read_bytes_per_s;
  ExplainKept(&e);
  FindBound(&e);
  return e;
}

}  // namespace kvant
