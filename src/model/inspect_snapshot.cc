#include "cache/snapshot.h"
#include "format/layer_layouts.h"
#include "gguf/mapped_file.h"
#include "kvant/inspect.h"

namespace kvant {
namespace {

SnapshotFormatTotal& TotalOf(const FormatPair& formats, SnapshotSummary* summary) {
  for (SnapshotFormatTotal& total : summary->totals) {
    if (total.formats == formats) return total;
  }
  return summary->totals.emplace_back(SnapshotFormatTotal{.formats = formats});
}

void AddPools(const SnapshotHeader& h, int layer, const LayerLayouts& layouts,
              SnapshotSummary* summary) {
  summary->mixed_layers.push_back(layer);
  for (int kv_head = 0; kv_head < h.geometry.kv_heads; ++kv_head) {
    const SavedMixedHead& head = h.widths.HeadOf(layer, kv_head);
    summary->dropped_head_tokens += head.dropped_tokens;
    for (size_t j = 0; j < head.pools.size(); ++j) {
      const SavedPool& pool = head.pools[j];
      SnapshotPoolTotal& total = summary->pools[j];
      const PageLayout layout = MakePageLayout(total.pool.formats.k, total.pool.formats.v,
                                               h.geometry.head_dim, kPageTokens);
      total.head_tokens += pool.tokens;
      total.pages += pool.coded_pages();
      total.bytes += pool.coded_pages() * layout.page_bytes;
      summary->window_bytes += pool.pages_as_written() * layouts.open.page_bytes;
    }
  }
}

void AddLayer(const SnapshotHeader& h, int layer, SnapshotSummary* summary) {
  const auto at = static_cast<size_t>(layer);
  const bool is_mixed = h.widths.is_mixed(layer);
  const FormatPair& formats = h.kv.layers[at];
  const LayerLayouts layouts =
      MakeLayerLayouts(formats, is_mixed, h.geometry, h.page_tokens, h.kv.sinks_tokens);
  const int64_t heads = h.geometry.kv_heads;
  if (is_mixed) {
    AddPools(h, layer, layouts, summary);
  } else {
    SnapshotFormatTotal& total = TotalOf(formats, summary);
    const int64_t pages = heads * (layouts.coded ? h.stored[at] : h.open[at]).count();
    total.layers += 1;
    total.pages += pages;
    total.bytes += pages * layouts.stored.page_bytes;
  }
  if (!layouts.coded || h.length == 0) return;
  summary->window_bytes += heads * h.open[at].count() * layouts.open.page_bytes;
  if (h.HoldsSinks(layer)) summary->sink_bytes += heads * layouts.sink.page_bytes;
}

}  // namespace

Result<bool> IsSnapshotFile(const std::string& path) {
  KVANT_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return IsSnapshot(file.bytes());
}

Result<SnapshotSummary> InspectSnapshot(const std::string& path) {
  KVANT_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  Result<Snapshot> snapshot = ParseSnapshot(file.bytes());
  if (!snapshot.ok()) {
    return Status(snapshot.status().code(), path + ": " + snapshot.status().message());
  }
  const SnapshotHeader& h = snapshot->header;
  SnapshotSummary summary;
  summary.file_bytes = std::ssize(file.bytes());
  summary.model_hash = h.model_hash;
  summary.calibration_hash = h.calibration_hash;
  summary.geometry = h.geometry;
  summary.sinks_tokens = h.kv.sinks_tokens;
  summary.window_tokens = h.kv.window_tokens;
  summary.page_tokens = h.page_tokens;
  summary.length = h.length;
  summary.tokens = snapshot->tokens;
  summary.has_logits = !snapshot->state.empty();
  summary.formats = h.kv.layers;
  for (const MixedPool& pool : h.widths.pools) summary.pools.push_back({.pool = pool});
  summary.policy = h.widths.policy;
  summary.once = h.widths.once;
  summary.budget_bytes = h.widths.budget_bytes;
  for (int layer = 0; layer < h.geometry.layers; ++layer) AddLayer(h, layer, &summary);
  summary.other_bytes = summary.file_bytes - summary.window_bytes - summary.sink_bytes;
  for (const SnapshotFormatTotal& total : summary.totals) summary.other_bytes -= total.bytes;
  for (const SnapshotPoolTotal& total : summary.pools) summary.other_bytes -= total.bytes;
  return summary;
}

}  // namespace kvant
