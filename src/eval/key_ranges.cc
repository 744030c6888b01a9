#include <algorithm>
#include <cmath>
#include <utility>

#include "codec/codec.h"
#include "kvant/eval.h"
#include "model/model_impl.h"
#include "model/session_impl.h"
#include "model/text_chunk.h"

namespace kvant {
namespace {

// Adds the tokens [first, end) of one head, which a view of float pages shows.
void AddHead(const HeadView& view, int64_t first, int64_t end, int head_dim, float* max_abs,
             double* sums) {
  for (const Run& run : view.runs) {
    for (int64_t t = run.first_token; t < run.end_token; ++t) {
      const int64_t position = run.first_position + t;
      if (position < first || position >= end) continue;
      const SideLayout& side = run.layout->k;
      const std::byte* page = run.pages[t / side.tokens];
      for (int c = 0; c < head_dim; ++c) {
        const float value = LoadFloatValue(side, page, static_cast<int>(t % side.tokens), c);
        max_abs[c] = std::max(max_abs[c], std::abs(value));
        sums[c] += static_cast<double>(value);
      }
    }
  }
}

KeyRanges RangesOf(Session& session, int64_t first) {
  const Cache& cache = *session.impl().engine->cache;
  const SequenceId sequence = session.impl().sequence;
  const int64_t end = session.length();
  KeyRanges ranges;
  ranges.geometry = cache.geometry();
  ranges.tokens = end - first;
  const KvGeometry& g = ranges.geometry;
  const size_t values = static_cast<size_t>(int64_t{g.layers} * g.kv_heads * g.head_dim);
  ranges.max_abs.assign(values, 0);
  std::vector<double> sums(values);
  size_t at = 0;
  for (int layer = 0; layer < g.layers; ++layer) {
    for (int head = 0; head < g.kv_heads; ++head, at += static_cast<size_t>(g.head_dim)) {
      const HeadView view = cache.View(sequence, layer, head, (end - 1) / cache.page_tokens());
      AddHead(view, first, end, g.head_dim, ranges.max_abs.data() + at, sums.data() + at);
    }
  }
  for (const double sum : sums) {
    ranges.mean.push_back(static_cast<float>(sum / static_cast<double>(ranges.tokens)));
  }
  return ranges;
}

}  // namespace

Result<KeyRanges> MeasureKeyRanges(const Model& model, std::span<const int32_t> text,
                                   const KeyRangeOptions& options, const RunControl& control) {
  const int64_t tokens = std::min(options.max_tokens, static_cast<int64_t>(text.size()));
  if (options.skip_tokens < 0 || tokens <= options.skip_tokens) {
    return Status::InvalidArgument("no keys are left of " + std::to_string(tokens) +
                                   " tokens without the first " +
                                   std::to_string(options.skip_tokens));
  }
  SessionOptions session_options{.kv = {},
                                 .context_tokens = tokens,
                                 .threads = options.threads,
                                 .chunk_tokens = options.chunk_tokens};
  session_options.kv.k = session_options.kv.v = kFormatF32;
  KVANT_ASSIGN_OR_RETURN(Session session, Session::Create(model, session_options));
  KVANT_RETURN_IF_ERROR(session.Prefill(ChunkOf(model.tokenizer(), text, 0, tokens), control));
  return RangesOf(session, options.skip_tokens);
}

}  // namespace kvant
