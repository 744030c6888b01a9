#include "kvant/explain.h"

#include <algorithm>

#include "format/layer_layouts.h"
#include "format/page_rule.h"

namespace kvant {
namespace {

constexpr int64_t kMaxContextTokens = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxBatch = int64_t{1} << 20;

// One layer of a cache, and how much of one sequence's `tokens` tokens it sees.
struct Layer : LayerLayouts {
  Layer(const KvGeometry& g, const KvSpec& spec, int page_tokens,
        std::span<const int64_t> layer_windows, int layer, int64_t tokens_in)
      : LayerLayouts(
            MakeLayerLayouts(LayerFormats(spec, layer), false, g, page_tokens, spec.sinks_tokens)),
        index(layer),
        tokens(tokens_in) {
    const int64_t window = layer_windows.empty() ? 0 : layer_windows[static_cast<size_t>(layer)];
    if (window != 0) first_seen = std::max<int64_t>(0, tokens - window);
    rule = PageRule::Of(page_tokens, coded, spec.window_tokens, window);
    rule.takes_turns = searched;
  }

  // Of whole pages, from the first that is held; the last may be partly filled.
  int64_t held_tokens() const {
    return tokens - int64_t{rule.FirstHeld(tokens)} * rule.page_tokens;
  }

  // In stored form, of all KV heads.
  int64_t stored_pages(const KvGeometry& g) const {
    int64_t pages = 0;
    for (int h = 0; h < g.kv_heads; ++h) {
      const int64_t head = int64_t{index} * g.kv_heads + h;
      pages += rule.SealedPages(tokens, head, int64_t{g.layers} * g.kv_heads);
    }
    return pages - int64_t{g.kv_heads} * rule.FirstStored(tokens);
  }

  int index;
  int64_t tokens;
  int64_t first_seen = 0;  // by the query of the last token
  PageRule rule;
};

// visit(const Layer&) for all layers.
template <typename Visit>
void ForEachLayer(const KvGeometry& g, const KvSpec& spec, std::span<const int64_t> layer_windows,
                  int64_t tokens, const Visit& visit) {
  const int page_tokens = PageTokensOf(spec, g.layers);
  for (int layer = 0; layer < g.layers; ++layer) {
    visit(Layer(g, spec, page_tokens, layer_windows, layer, tokens));
  }
}

// Bytes of `tokens` tokens in float pages; their padding is not read.
int64_t FloatBytes(const KvGeometry& g, const PageLayout& page, int64_t tokens) {
  return tokens * g.kv_heads * page.token_bytes();
}

PageCost CostOf(const KvGeometry& g, const KvSpec& spec, int64_t context_tokens, int64_t batch,
                const Device& device, std::span<const int64_t> layer_windows) {
  PageCost cost;
  const int page_tokens = PageTokensOf(spec, g.layers);
  int64_t code_bytes = 0, metadata_bytes = 0, page_bytes = 0;
  double held_bytes = 0, seen_bytes = 0;  // of one sequence, times page_tokens
  ForEachLayer(g, spec, layer_windows, context_tokens, [&](const Layer& layer) {
    const SideLayout &k = layer.stored.k, &v = layer.stored.v;
    code_bytes += g.kv_heads * (k.code_bytes() + v.code_bytes());
    metadata_bytes += g.kv_heads * (k.used_metadata_bytes() + v.used_metadata_bytes());
    const int64_t layer_bytes = int64_t{g.kv_heads} * layer.stored.page_bytes;
    page_bytes += layer_bytes;
    held_bytes += static_cast<double>(layer_bytes) * static_cast<double>(layer.held_tokens());
    seen_bytes +=
        static_cast<double>(layer_bytes) * static_cast<double>(context_tokens - layer.first_seen);
  });
  const auto per_token = [&](int64_t bytes) { return static_cast<double>(bytes) / page_tokens; };
  cost.code_bytes_per_token = per_token(code_bytes);
  cost.metadata_bytes_per_token = per_token(metadata_bytes);
  cost.padding_bytes_per_token = per_token(page_bytes - code_bytes - metadata_bytes);
  cost.bytes_per_token = per_token(page_bytes);
  cost.bytes = static_cast<int64_t>(held_bytes * static_cast<double>(batch) / page_tokens);
  cost.read_bytes = static_cast<int64_t>(seen_bytes * static_cast<double>(batch) / page_tokens);
  cost.effective_bits = 8 * cost.bytes_per_token / static_cast<double>(g.values_per_token());
  cost.stream_ms = 1e3 * static_cast<double>(cost.read_bytes) / device.read_bytes_per_s;
  return cost;
}

// Float pages have neither window nor sinks.
void AddFloatLayer(const KvGeometry& g, const Layer& layer, HeldBytes* held) {
  const PageRule& rule = layer.rule;
  const int64_t pages = rule.PagesOf(layer.tokens) - rule.FirstOpen(layer.tokens);
  const int64_t bytes = pages * g.kv_heads * layer.open.page_bytes;
  const int64_t values = FloatBytes(g, layer.open, layer.held_tokens());
  held->code_bytes += values;
  held->padding_bytes += bytes - values;  // the unwritten end of the last page too
  held->read_bytes += FloatBytes(g, layer.open, layer.tokens - layer.first_seen);
}

void AddCodedLayer(const KvGeometry& g, const KvSpec& spec, const Layer& layer, HeldBytes* held) {
  const PageRule& rule = layer.rule;
  const PageLayout& stored = layer.stored;
  const int64_t tokens = layer.tokens, first_seen = layer.first_seen;
  const int64_t heads_pages = layer.stored_pages(g);
  held->code_bytes += heads_pages * (stored.k.code_bytes() + stored.v.code_bytes());
  held->metadata_bytes +=
      heads_pages * (stored.k.used_metadata_bytes() + stored.v.used_metadata_bytes());
  held->padding_bytes += heads_pages * (stored.k.padding_bytes() + stored.v.padding_bytes());
  held->window_bytes +=
      int64_t{rule.PagesOf(tokens) - rule.FirstOpen(tokens)} * g.kv_heads * layer.open.page_bytes;
  if (layer.has_sinks() && rule.FirstHeld(tokens) == 0) {
    held->sink_bytes += int64_t{g.kv_heads} * layer.sink.page_bytes;
  }
  // Sinks are read from their own page, and never twice.
  const int open_page = rule.StoredEnd(rule.LastPage(tokens));
  const int64_t stored_end = int64_t{open_page} * rule.page_tokens;
  const int64_t sinks =
      std::max<int64_t>(0, std::min<int64_t>(spec.sinks_tokens, stored_end) - first_seen);
  const int64_t as_written = tokens - std::max(stored_end, first_seen) + sinks;
  const int64_t read_pages = std::max<int64_t>(0, open_page - first_seen / rule.page_tokens);
  held->read_bytes +=
      read_pages * g.kv_heads * stored.page_bytes + FloatBytes(g, layer.open, as_written);
}

// Which tokens of a sequence are kept as written, and what they add to the stored pages.
void ExplainKept(KvExplanation* e) {
  e->window.bytes = e->ledger.window_bytes;
  e->sinks.bytes = e->ledger.sink_bytes;
  bool any_coded = false;
  for (int layer = 0; layer < e->geometry.layers && !any_coded; ++layer) {
    any_coded = IsCoded(LayerFormats(e->spec, layer));
  }
  if (any_coded) {
    const PageRule rule = PageRule::Of(e->page_tokens, true, e->spec.window_tokens, 0);
    const int open_page = rule.StoredEnd(rule.LastPage(e->context_tokens));
    e->window.tokens = e->context_tokens - int64_t{open_page} * e->page_tokens;
    e->sinks.tokens = std::min<int64_t>(e->spec.sinks_tokens, e->context_tokens);
  }
  // Sinks keep their slots in page 0, so all of their page is on top. The rest of the difference
  // is the window's, with the unwritten end of the open page.
  e->sinks.added_bytes = e->sinks.bytes;
  e->window.added_bytes = e->ledger.kv_bytes - e->kv.bytes - e->sinks.bytes;
}

void FindBound(KvExplanation* e) {
  const KvGeometry& g = e->geometry;
  // Per query head and cached token that it sees: head_dim products and sums for the score, one of
  // each for every channel of the weighted values.
  int64_t seen = 0;
  ForEachLayer(g, e->spec, e->layer_windows, e->context_tokens,
               [&](const Layer& layer) { seen += layer.tokens - layer.first_seen; });
  e->flops = 2.0 * g.q_heads * (g.head_dim + g.v_channels()) * static_cast<double>(seen) *
             static_cast<double>(e->batch);
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
  int64_t held_tokens = 0;  // of every layer
  ForEachLayer(geometry, spec, layer_windows, tokens, [&](const Layer& layer) {
    held_tokens += layer.held_tokens();
    !layer.coded ? AddFloatLayer(geometry, layer, &held)
                 : AddCodedLayer(geometry, spec, layer, &held);
  });
  for (int64_t* bytes : {&held.code_bytes, &held.metadata_bytes, &held.padding_bytes,
                         &held.window_bytes, &held.sink_bytes}) {
    *bytes *= batch;
    held.kv_bytes += *bytes;
  }
  held.read_bytes *= batch;
  const double layer_values =
      static_cast<double>(geometry.values_per_token()) / geometry.layers;  // of one token
  const double values =
      layer_values * static_cast<double>(held_tokens) * static_cast<double>(batch);
  held.effective_bits = 8.0 * static_cast<double>(held.kv_bytes) / values;
  return held;
}

KiviResidual ResidualOfKivi(const KvGeometry& geometry, const KvSpec& spec, int64_t tokens) {
  KiviResidual residual;
  residual.k_tokens = tokens % kKiviResidualTokens;
  residual.v_tokens = std::min<int64_t>(tokens, kKiviResidualTokens);
  const auto bits_of = [&](const Format& format, int64_t kept, int channels) {
    if (format.is_float()) return static_cast<double>(format.bits);
    const double share = static_cast<double>(kept) / static_cast<double>(tokens);
    return share * kFormatF16.bits + (1 - share) * format.EffectiveBits(channels);
  };
  for (int layer = 0; layer < geometry.layers; ++layer) {
    const FormatPair pair = LayerFormats(spec, layer);
    residual.k_bits += bits_of(pair.k, residual.k_tokens, geometry.k_channels()) / geometry.layers;
    residual.v_bits += bits_of(pair.v, residual.v_tokens, geometry.v_channels()) / geometry.layers;
  }
  const int k = geometry.k_channels(), v = geometry.v_channels();
  residual.mean_bits = (k * residual.k_bits + v * residual.v_bits) / (k + v);
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
  const int padded = PaddedDim(geometry.k_channels()) + PaddedDim(geometry.v_channels());
  const double most_bytes = 4.0 * geometry.layers * geometry.kv_heads * padded *
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
  e.page_tokens = PageTokensOf(spec, geometry.layers);
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
