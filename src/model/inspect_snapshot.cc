#include <algorithm>

#include "cache/snapshot.h"
#include "format/layer_layouts.h"
#include "gguf/mapped_file.h"
#include "kvant/inspect.h"

namespace kvant {
namespace {

void AddLayer(const SnapshotHeader& h, size_t layer, SnapshotSummary* summary) {
  const FormatPair& formats = h.kv.layers[layer];
  const LayerLayouts layouts =
      MakeLayerLayouts(formats, false, h.geometry.head_dim, h.page_tokens, h.kv.sinks_tokens);
  auto total = std::find_if(summary->totals.begin(), summary->totals.end(),
                            [&](const SnapshotFormatTotal& t) { return t.formats == formats; });
  if (total == summary->totals.end()) {
    total = summary->totals.insert(summary->totals.end(), {.formats = formats});
  }
  const PageRange& range = layouts.coded ? h.stored[layer] : h.open[layer];
  const int64_t heads = h.geometry.kv_heads, pages = heads * range.count();
  total->layers += 1;
  total->pages += pages;
  total->bytes += pages * layouts.stored.page_bytes;
  if (!layouts.coded || h.length == 0) return;
  summary->window_bytes += heads * h.open[layer].count() * layouts.open.page_bytes;
  if (h.HoldsSinks(static_cast<int>(layer))) {
    summary->sink_bytes += heads * layouts.sink.page_bytes;
  }
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
  for (size_t layer = 0; layer < h.kv.layers.size(); ++layer) AddLayer(h, layer, &summary);
  summary.other_bytes = summary.file_bytes - summary.window_bytes - summary.sink_bytes;
  for (const SnapshotFormatTotal& total : summary.totals) summary.other_bytes -= total.bytes;
  return summary;
}

}  // namespace kvant
