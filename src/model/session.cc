#include "kvant/session.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "kvant/calibration.h"
#include "kvant/isa.h"
#include "kvant/mixed_spec.h"
#include "model/model_impl.h"
#include "model/session_impl.h"

namespace kvant {
namespace {

constexpr int kMaxChunkTokens = 4096;
constexpr int64_t kMaxContextTokens = int64_t{1} << 24;

Status CheckOptions(const SessionOptions& options) {
  if (options.chunk_tokens < 1 || options.chunk_tokens > kMaxChunkTokens) {
    return Status::InvalidArgument("chunks of " + std::to_string(options.chunk_tokens) +
                                   " tokens are outside 1.." + std::to_string(kMaxChunkTokens));
  }
  if (options.context_tokens < 0 || options.context_tokens > kMaxContextTokens) {
    return Status::InvalidArgument("a context of " + std::to_string(options.context_tokens) +
                                   " tokens is outside 1.." + std::to_string(kMaxContextTokens));
  }
  if (options.kv_budget_bytes < 0) {
    return Status::InvalidArgument("a cache budget of " + std::to_string(options.kv_budget_bytes) +
                                   " bytes is negative");
  }
  return Status::Ok();
}

}  // namespace

std::vector<Rope> LayerRopes(const ModelConfig& config, const ModelWeights& weights) {
  std::vector<Rope> ropes;
  for (int layer = 0; layer < config.layers; ++layer) {
    ropes.push_back(MakeRope(config.ropes[config.rope_of(layer)], config.rope_dims,
                             config.rope_pairs, weights.rope_factors));
  }
  return ropes;
}

Session::Impl::~Impl() {
  // Cannot fail for a sequence that is held.
  (void)engine->cache->Free(sequence);
}

Status Session::Impl::Check(std::span<const int32_t> added) const {
  const int vocab = engine->model.vocab_size();
  for (size_t i = 0; i < added.size(); ++i) {
    if (added[i] >= 0 && added[i] < vocab) continue;
    return Status::InvalidArgument("token " + std::to_string(added[i]) + " at place " +
                                   std::to_string(i) + " is outside the vocabulary of " +
                                   std::to_string(vocab));
  }
  const int64_t wanted = length() + std::ssize(added);
  if (wanted > engine->context_tokens) {
    return Status::OutOfRange("a timeline of " + std::to_string(wanted) +
                              " tokens is longer than the context of " +
                              std::to_string(engine->context_tokens) + " tokens");
  }
  return Status::Ok();
}

Status Session::Impl::Step(std::span<const int32_t> added, const std::atomic<bool>* cancel,
                           bool newest_only) {
  newest_only =
      newest_only && !engine->llama->observes_attention() && !engine->cache->measures_attention();
  const StepPart parts[] = {{sequence, added, newest_only}};
  KVANT_RETURN_IF_ERROR(engine->llama->Step(parts, cancel));
  TakeStep(added, newest_only ? 0 : std::ssize(added) - 1);
  return Status::Ok();
}

void Session::Impl::TakeStep(std::span<const int32_t> added, int64_t row) {
  tokens.insert(tokens.end(), added.begin(), added.end());
  const float* from = engine->llama->hidden(row);
  hidden.assign(from, from + engine->model.impl().config.embedding);
  logits.reset();
}

Result<std::shared_ptr<float>> LogitRows::Take(int64_t values) {
  const size_t bytes = sizeof(float) * static_cast<size_t>(values);
  if (buffer_ == nullptr || buffer_.use_count() != 1 || buffer_->bytes() < bytes) {
    KVANT_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Create(bytes));
    buffer_ = std::make_shared<AlignedBuffer>(std::move(buffer));
  }
  return std::shared_ptr<float>(buffer_, buffer_->as<float>());
}

Result<Session> SessionMaker::Create(const Model& model, const SessionOptions& options,
                                     std::shared_ptr<ThreadPool> pool) {
  KVANT_RETURN_IF_ERROR(IsaStatus());
  KVANT_RETURN_IF_ERROR(CheckOptions(options));
  KVANT_RETURN_IF_ERROR(CheckKvSpec(options.kv, model.geometry()));
  const Model::Impl& impl = model.impl();
  if (options.kv.calibration != nullptr) {
    KVANT_RETURN_IF_ERROR(CheckCalibratedModel(*options.kv.calibration, impl.file_hash));
  }
  KVANT_RETURN_IF_ERROR(CheckMixedModel(options.kv, impl.file_hash));
  auto engine = std::make_shared<SessionEngine>(model);
  engine->pool = std::move(pool);
  engine->context_tokens =
      options.context_tokens != 0 ? options.context_tokens : model.context_tokens();
  std::span<const float> balance;
  if (NeedsBalance(options.kv, impl.config.layers)) {
    balance = impl.key_balance->Of(impl.config, impl.weights);
  }
  std::vector<Rope> ropes;
  if (NeedsRopes(options.kv, impl.config.layers)) ropes = LayerRopes(impl.config, impl.weights);
  KVANT_ASSIGN_OR_RETURN(engine->cache, Cache::Create(model.geometry(), options.kv,
                                                      {.context_tokens = engine->context_tokens,
                                                       .budget_bytes = options.kv_budget_bytes,
                                                       .layer_windows = model.layer_windows(),
                                                       .k_balance = balance,
                                                       .ropes = ropes}));
  const ActivationMode mode =
      impl.float_activations ? ActivationMode::kFloat : ActivationMode::kInt8;
  const int64_t rows = std::min<int64_t>(options.chunk_tokens, engine->context_tokens);
  KVANT_ASSIGN_OR_RETURN(engine->llama, Llama::Create(impl.config, impl.weights, mode, rows,
                                                      *engine->pool, *engine->cache));
  KVANT_ASSIGN_OR_RETURN(const SequenceId sequence, engine->cache->NewSequence());
  return Wrap(std::make_unique<Session::Impl>(std::move(engine), sequence));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Result<Session> Session::Create(const Model& model, const SessionOptions& options) {
  KVANT_ASSIGN_OR_RETURN(std::shared_ptr<ThreadPool> pool,
                         ThreadPool::Create(ThreadCount(options.threads)));
  return SessionMaker::Create(model, options, std::move(pool));
}

Status Session::Prefill(std::span<const int32_t> tokens, const RunControl& control) {
  KVANT_RETURN_IF_ERROR(impl_->Check(tokens));
  const int64_t total = static_cast<int64_t>(tokens.size());
  for (int64_t done = 0; done < total;) {
    const int64_t count = std::min(impl_->max_step_tokens(), total - done);
    KVANT_RETURN_IF_ERROR(
        impl_->Step(tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(count)),
                    control.cancel, true));
    done += count;
    if (control.progress) control.progress(done, total);
  }
  return Status::Ok();
}

Status Session::Decode(int32_t token) {
  const std::span<const int32_t> tokens(&token, 1);
  KVANT_RETURN_IF_ERROR(impl_->Check(tokens));
  return impl_->Step(tokens, nullptr);
}

Status Session::DecodeBatch(std::span<Session* const> sessions, std::span<const int32_t> tokens) {
  if (sessions.empty() || sessions.size() != tokens.size()) {
    return Status::InvalidArgument(std::to_string(tokens.size()) + " tokens for " +
                                   std::to_string(sessions.size()) + " sessions");
  }
  SessionEngine& engine = *sessions[0]->impl_->engine;
  if (static_cast<int64_t>(sessions.size()) > engine.llama->max_rows()) {
    return Status::InvalidArgument(std::to_string(sessions.size()) +
                                   " sessions are more than a chunk of " +
                                   std::to_string(engine.llama->max_rows()) + " tokens");
  }
  std::vector<StepPart> parts;
  for (size_t i = 0; i < sessions.size(); ++i) {
    Impl& impl = *sessions[i]->impl_;
    if (impl.engine.get() != &engine) {
      return Status::InvalidArgument("session " + std::to_string(i) + " has another cache");
    }
    if (std::any_of(parts.begin(), parts.end(),
                    [&](const StepPart& part) { return part.sequence == impl.sequence; })) {
      return Status::InvalidArgument("session " + std::to_string(i) + " stands there twice");
    }
    KVANT_RETURN_IF_ERROR(impl.Check(tokens.subspan(i, 1)));
    parts.push_back({impl.sequence, tokens.subspan(i, 1)});
  }
  KVANT_RETURN_IF_ERROR(engine.llama->Step(parts, nullptr));
  const int64_t rows = static_cast<int64_t>(sessions.size()), vocab = engine.model.vocab_size();
  for (int64_t i = 0; i < rows; ++i) {
    const auto at = static_cast<size_t>(i);
    sessions[at]->impl_->TakeStep(tokens.subspan(at, 1), i);
  }
  // The output matrix is the largest of all: one pass over it serves every session too. Without
  // memory for that, each session computes its logits when it is asked for them.
  const Result<std::shared_ptr<float>> logits = engine.batch_logits.Take(rows * vocab);
  if (!logits.ok()) return Status::Ok();
  engine.llama->Logits(engine.llama->hidden(0), rows, logits->get());
  for (int64_t i = 0; i < rows; ++i) {
    sessions[static_cast<size_t>(i)]->impl_->logits = {*logits, logits->get() + i * vocab};
  }
  return Status::Ok();
}

Result<std::span<const float>> Session::Logits() {
  Impl& impl = *impl_;
  if (impl.hidden.empty()) {
    return Status::InvalidArgument("there are no logits before a token was appended");
  }
  const int vocab = impl.engine->model.vocab_size();
  if (impl.logits == nullptr) {
    KVANT_ASSIGN_OR_RETURN(const std::shared_ptr<float> logits, impl.own_logits.Take(vocab));
    impl.engine->llama->Logits(impl.hidden.data(), 1, logits.get());
    impl.logits = logits;
  }
  return std::span<const float>(impl.logits.get(), static_cast<size_t>(vocab));
}

Result<Session> Session::Fork() {
  KVANT_ASSIGN_OR_RETURN(const SequenceId sequence, impl_->engine->cache->Fork(impl_->sequence));
  auto fork = std::make_unique<Impl>(impl_->engine, sequence);
  fork->tokens = impl_->tokens;
  fork->hidden = impl_->hidden;
  fork->logits = impl_->logits;
  return Session(std::move(fork));
}

Status Session::Truncate(int64_t length) {
  if (length == impl_->length()) return Status::Ok();
  KVANT_RETURN_IF_ERROR(impl_->engine->cache->Truncate(impl_->sequence, length));
  impl_->tokens.resize(static_cast<size_t>(length));
  impl_->hidden.clear();
  return Status::Ok();
}

Status Session::Reset() {
  KVANT_ASSIGN_OR_RETURN(const SequenceId fresh, impl_->engine->cache->NewSequence());
  const SequenceId old = std::exchange(impl_->sequence, fresh);
  impl_->tokens.clear();
  impl_->hidden.clear();
  return impl_->engine->cache->Free(old);
}

void Session::ObserveAttention(AttentionObserver observer) {
  impl_->engine->llama->ObserveAttention(std::move(observer));
}

const Model& Session::model() const { return impl_->engine->model; }
int64_t Session::length() const { return impl_->length(); }
std::span<const int32_t> Session::tokens() const { return impl_->tokens; }
int64_t Session::context_tokens() const { return impl_->engine->context_tokens; }
int Session::threads() const { return impl_->engine->pool->threads(); }
const KvSpec& Session::kv() const { return impl_->engine->cache->spec(); }

std::vector<FormatPair> Session::layer_formats() const {
  std::vector<FormatPair> formats;
  for (int layer = 0; layer < model().geometry().layers; ++layer) {
    formats.push_back(LayerFormats(kv(), layer));
  }
  return formats;
}

CacheLedger Session::ledger() const { return impl_->engine->cache->ledger(); }
int64_t Session::kv_bytes_read() const { return impl_->engine->llama->kv_bytes_read(); }
int64_t Session::kv_bytes_read_per_token() const {
  return impl_->engine->cache->bytes_read_per_token(impl_->sequence);
}

}  // namespace kvant
