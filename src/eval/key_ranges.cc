#include <algorithm>
#include <cmath>
#include <vector>

#include "kvant/eval.h"
#include "model/model_impl.h"
#include "model/session_impl.h"
#include "model/text_chunk.h"

namespace kvant {
namespace {

// Looks at keys on their way to the cache: a layer with a window does not hold those of a whole
// text.
class KeySums {
 public:
  KeySums(const KvGeometry& geometry, int64_t skip_tokens)
      : skip_tokens_(skip_tokens), seen_tokens_(static_cast<size_t>(geometry.layers)) {
    ranges_.geometry = geometry;
    const int64_t values = int64_t{geometry.layers} * geometry.kv_heads * geometry.head_dim;
    ranges_.max_abs.resize(static_cast<size_t>(values));
    sums_.resize(static_cast<size_t>(values));
  }

  // Layers see the tokens of the text in order.
  void Add(const LayerVectors& s) {
    int64_t& seen = seen_tokens_[static_cast<size_t>(s.layer)];
    const int layer_values = s.kv_heads * s.head_dim;
    const auto first = static_cast<size_t>(s.layer * layer_values);
    for (int64_t row = std::max<int64_t>(0, skip_tokens_ - seen); row < s.rows; ++row) {
      const float* const k = s.Key(row, 0);
      for (int i = 0; i < layer_values; ++i) {
        float& largest = ranges_.max_abs[first + static_cast<size_t>(i)];
        largest = std::max(largest, std::abs(k[i]));
        sums_[first + static_cast<size_t>(i)] += static_cast<double>(k[i]);
      }
    }
    seen += s.rows;
  }

  KeyRanges Finish() && {
    ranges_.tokens = seen_tokens_[0] - skip_tokens_;
    for (const double sum : sums_) {
      ranges_.mean.push_back(static_cast<float>(sum / static_cast<double>(ranges_.tokens)));
    }
    return std::move(ranges_);
  }

 private:
  const int64_t skip_tokens_;
  std::vector<int64_t> seen_tokens_;  // [layers]
  std::vector<double> sums_;
  KeyRanges ranges_;
};

}  // namespace

Result<KeyRanges> MeasureKeyRanges(const Model& model, std::span<const int32_t> text,
                                   const KeyRangeOptions& options, const RunControl& control) {
  const int64_t tokens = std::min(options.max_tokens, static_cast<int64_t>(text.size()));
  if (options.skip_tokens < 0 || tokens <= options.skip_tokens) {
    return Status::InvalidArgument("no keys are left of " + std::to_string(tokens) +
                                   " tokens without the first " +
                                   std::to_string(options.skip_tokens));
  }
  KVANT_RETURN_IF_ERROR(CheckHasHeadKeys(model.impl().config, "a picture of the keys"));
  SessionOptions session_options{.kv = {},
                                 .context_tokens = tokens,
                                 .threads = options.threads,
                                 .chunk_tokens = options.chunk_tokens};
  session_options.kv.k = session_options.kv.v = kFormatF32;
  KVANT_ASSIGN_OR_RETURN(Session session, Session::Create(model, session_options));
  KeySums sums(model.geometry(), options.skip_tokens);
  session.impl().engine->llama->Observe([&](const LayerVectors& vectors) { sums.Add(vectors); });
  KVANT_RETURN_IF_ERROR(session.Prefill(ChunkOf(model.tokenizer(), text, 0, tokens), control));
  return std::move(sums).Finish();
}

}  // namespace kvant
