#include "kvant/calibrate.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "calibrate/layer_statistics.h"
#include "model/model_impl.h"
#include "model/session_impl.h"
#include "model/text_chunk.h"

namespace kvant {
namespace {

constexpr int64_t kLeastSequence = 128, kLongestSequence = 4096;  // tokens

Status CheckOptions(std::span<const int32_t> text, const CalibrateOptions& options) {
  if (options.sequence_tokens < kLeastSequence || options.sequence_tokens > kLongestSequence) {
    return Status::InvalidArgument("sequences of " + std::to_string(options.sequence_tokens) +
                                   " tokens are not between 128 and 4096");
  }
  if (options.max_tokens < options.sequence_tokens) {
    return Status::InvalidArgument("a calibration on " + std::to_string(options.max_tokens) +
                                   " tokens has no whole sequence of " +
                                   std::to_string(options.sequence_tokens));
  }
  if (static_cast<int64_t>(text.size()) < options.sequence_tokens) {
    return Status::OutOfRange("the text has " + std::to_string(text.size()) +
                              " tokens, fewer than a sequence of " +
                              std::to_string(options.sequence_tokens));
  }
  return Status::Ok();
}

std::vector<LayerStatistics> MakeStatistics(const Model::Impl& model) {
  const ModelConfig& config = model.config;
  const auto values = static_cast<size_t>(config.kv_heads * config.head_dim);
  const std::vector<float>& balance = model.key_balance->Of(config, model.weights);
  std::vector<LayerStatistics> layers;
  for (size_t i = 0; i < static_cast<size_t>(config.layers); ++i) {
    layers.emplace_back(config, std::span(balance).subspan(i * values, values));
  }
  return layers;
}

}  // namespace

Result<Calibration> Calibrate(const Model& model, std::span<const int32_t> text,
                              const CalibrateOptions& options, const RunControl& control) {
  KVANT_RETURN_IF_ERROR(CheckOptions(text, options));
  KVANT_RETURN_IF_ERROR(CheckHasHeadKeys(model.impl().config, "a calibration"));
  const int64_t length = options.sequence_tokens;
  const int64_t sequences =
      std::min(options.max_tokens, static_cast<int64_t>(text.size())) / length;
  // One sequence is one step, so that the observer sees it whole.
  SessionOptions session_options{.kv = {},
                                 .context_tokens = length,
                                 .threads = options.threads,
                                 .chunk_tokens = static_cast<int>(length)};
  session_options.kv.k = session_options.kv.v = kFormatF32;
  KVANT_ASSIGN_OR_RETURN(Session session, Session::Create(model, session_options));
  std::vector<LayerStatistics> layers = MakeStatistics(model.impl());
  session.impl().engine->llama->Observe([&](const LayerVectors& vectors) {
    layers[static_cast<size_t>(vectors.layer)].Add(vectors);
  });
  for (int64_t i = 0; i < sequences; ++i) {
    KVANT_RETURN_IF_ERROR(session.Reset());
    const std::vector<int32_t> tokens = ChunkOf(model.tokenizer(), text, i * length, length);
    KVANT_RETURN_IF_ERROR(session.Prefill(tokens, {.progress = {}, .cancel = control.cancel}));
    if (control.progress) control.progress((i + 1) * length, sequences * length);
  }
  Calibration calibration{.model_hash = model.file_hash(),
                          .geometry = model.geometry(),
                          .tokens = sequences * length,
                          .layers = {},
                          .layer_formats = {}};
  for (size_t i = 0; i < layers.size(); ++i) {
    KVANT_ASSIGN_OR_RETURN(LayerCalibration layer, layers[i].Finish("layer " + std::to_string(i)));
    calibration.layers.push_back(std::move(layer));
  }
  return calibration;
}

}  // namespace kvant
