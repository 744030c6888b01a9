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

bool IsFloat(const FormatPair& pair) { return pair.k.is_float() && pair.v.is_float(); }

// Where one sequence's tokens lie, in pages of page_tokens: the one precision rule of the cache,
// seen from a query in the last page.
struct Pages {
  int64_t stored = 0;  // leading pages in stored form
  int64_t open = 0;    // the window and the page that is being written
};
Pages SplitPages(int64_t tokens, int page_tokens, int window_tokens) {
  const int64_t last_page = (tokens - 1) / page_tokens;
  const int64_t window_pages = DivideUp(window_tokens, page_tokens);
  const int64_t stored = std::max<int64_t>(0, last_page - window_pages);
  return {stored, last_page + 1 - stored};
}

PageCost CostOf(const KvGeometry& g, const KvSpec& spec, int64_t context_tokens, int64_t batch,
                const Device& device) {
  PageCost cost;
  const int page_tokens = PageTokensFor(spec.k, spec.v);
  int64_t code_bytes = 0, metadata_bytes = 0, page_bytes = 0;
  for (int layer = 0; layer < g.layers; ++layer) {
    const FormatPair pair = LayerFormats(spec, layer);
    const PageLayout page = MakePageLayout(pair.k, pair.v, g.head_dim, page_tokens);
    code_bytes += g.kv_heads * (page.k.code_bytes() + page.v.code_bytes());
    metadata_bytes += g.kv_heads * (page.k.used_metadata_bytes() + page.v.used_metadata_bytes());
    page_bytes += int64_t{g.kv_heads} * page.page_bytes;
  }
  const auto per_token = [&](int64_t bytes) { return static_cast<double>(bytes) / page_tokens; };
  cost.code_bytes_per_token = per_token(code_bytes);
  cost.metadata_bytes_per_token = per_token(metadata_bytes);
  cost.padding_bytes_per_token = per_token(page_bytes - code_bytes - metadata_bytes);
  cost.bytes_per_token = per_token(page_bytes);
  const double tokens = static_cast<double>(context_tokens) * static_cast<double>(batch);
  cost.bytes = static_cast<int64_t>(cost.bytes_per_token * tokens);
  cost.effective_bits = 8 * cost.bytes_per_token / static_cast<double>(ValuesPerToken(g));
  cost.stream_ms = 1e3 * static_cast<double>(cost.bytes) / device.read_bytes_per_s;
  return cost;
}

void AddLayer(const KvGeometry& g, const KvSpec& spec, int layer, int64_t tokens,
              HeldBytes* ledger) {
  const FormatPair pair = LayerFormats(spec, layer);
  const int page_tokens = PageTokensFor(spec.k, spec.v);
  // Float layers have neither window nor sinks of their own: their pages simply stay.
  const bool is_float = IsFloat(pair);
  const Pages pages = is_float ? Pages{(tokens - 1) / page_tokens + 1, 0}
                               : SplitPages(tokens, page_tokens, spec.window_tokens);
  const PageLayout stored = MakePageLayout(pair.k, pair.v, g.head_dim, page_tokens);
  const int64_t held = pages.stored * g.kv_heads;
  ledger->code_bytes += held * (stored.k.code_bytes() + stored.v.code_bytes());
  ledger->metadata_bytes +=
      held * (stored.k.used_metadata_bytes() + stored.v.used_metadata_bytes());
  ledger->padding_bytes += held * (stored.k.padding_bytes() + stored.v.padding_bytes());
  if (is_float) {
    // The unwritten end of the last page holds no values.
    const int64_t absent_tokens = pages.stored * page_tokens - tokens;
    const int64_t absent = absent_tokens * g.kv_heads * g.head_dim * (pair.k.bits + pair.v.bits) / 8;
    ledger->code_bytes -= absent;
    ledger->padding_bytes += absent;
    return;
  }
  const FormatPair open = OpenFormats(pair);
  ledger->window_bytes += pages.open * g.kv_heads *
                          MakePageLayout(open.k, open.v, g.head_dim, page_tokens).page_bytes;
  if (spec.sinks_tokens == 0) return;
  const int sink_tokens = DivideUp(spec.sinks_tokens, kLaneBlock) * kLaneBlock;
  ledger->sink_bytes +=
      int64_t{g.kv_heads} * MakePageLayout(open.k, open.v, g.head_dim, sink_tokens).page_bytes;
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
  // Per query head and cached token: head_dim products and sums for the score, as many for the
  // weighted values.
  e->flops = 4.0 * g.layers * g.q_heads * g.head_dim * static_cast<double>(e->context_tokens) *
             static_cast<double>(e->batch);
  e->flops_per_byte = e->flops / static_cast<double>(e->kv.bytes);
  const Device& d = e->device;
  if (d.matrix_flops_per_s > 0) e->compute_ms = 1e3 * e->flops / d.matrix_flops_per_s;
  e->fits = d.memory_bytes == 0 || static_cast<double>(e->ledger.kv_bytes) <= d.memory_bytes;
  e->bound = !e->fits                             ? "memory capacity"
             : e->compute_ms > e->kv.stream_ms    ? "matrix arithmetic"
                                                  : "memory bandwidth";
}

}  // namespace

double PageBytesPerToken(const KvGeometry& geometry, const KvSpec& spec) {
  Device any;
  any.read_bytes_per_s = 1;
  return CostOf(geometry, spec, 1, 1, any).bytes_per_token;
}

HeldBytes LedgerOf(const KvGeometry& geometry, const KvSpec& spec, int64_t tokens, int64_t batch) {
  HeldBytes ledger;
  for (int layer = 0; layer < geometry.layers; ++layer) {
    AddLayer(geometry, spec, layer, tokens, &ledger);
  }
  for (int64_t* bytes : {&ledger.code_bytes, &ledger.metadata_bytes, &ledger.padding_bytes,
                         &ledger.window_bytes, &ledger.sink_bytes}) {
    *bytes *= batch;
    ledger.kv_bytes += *bytes;
  }
  ledger.effective_bits = 8.0 * static_cast<double>(ledger.kv_bytes) /
                          (static_cast<double>(ValuesPerToken(geometry)) *
                           static_cast<double>(tokens) * static_cast<double>(batch));
  return ledger;
}

Result<KvExplanation> ExplainKv(const KvGeometry& geometry, const KvSpec& spec,
                                int64_t context_tokens, int64_t batch, const Device& device) {
  KVANT_RETURN_IF_ERROR(CheckKvSpec(spec, geometry));
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
  e.context_tokens = context_tokens;
  e.batch = batch;
  e.page_tokens = PageTokensFor(spec.k, spec.v);
  e.device = device;
  e.f16 = CostOf(geometry, KvSpec{}, context_tokens, batch, device);
  e.kv = CostOf(geometry, spec, context_tokens, batch, device);
  e.ratio = e.f16.bytes_per_token / e.kv.bytes_per_token;
  e.ledger = LedgerOf(geometry, spec, context_tokens, batch);
  e.ledger_stream_ms = 1e3 * static_cast<double>(e.ledger.kv_bytes) / device.read_bytes_per_s;
  ExplainKept(&e);
  FindBound(&e);
  return e;
}

}  // namespace kvant
