#include "kvant/model.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/thread_pool.h"
#include "base/xxh64.h"
#include "gguf/gguf_file.h"
#include "kvant/isa.h"
#include "model/model_impl.h"
#include "model/tokenizer_gguf.h"

namespace kvant {
namespace {

Result<Model::Impl> LoadImpl(const GgufFile& file, const ModelOptions& options, ThreadPool& pool) {
  KVANT_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(file));
  KVANT_ASSIGN_OR_RETURN(Tokenizer tokenizer, LoadTokenizer(file));
  Result<ChatTemplate> chat_template = LoadChatTemplate(file, tokenizer);
  KVANT_ASSIGN_OR_RETURN(ModelWeights weights, LoadWeights(file, config, pool));
  return Model::Impl{.path = {},
                     .config = std::move(config),
                     .tokenizer = std::move(tokenizer),
                     .chat_template = std::move(chat_template),
                     .weights = std::move(weights),
                     .file_bytes = static_cast<int64_t>(file.bytes().size()),
                     .file_hash = Xxh64(file.bytes()),
                     .float_activations = options.float_activations};
}

}  // namespace

Status CheckHasHeadKeys(const ModelConfig& config, std::string_view what) {
  if (config.latent_dim == 0) return Status::Ok();
  return Status::Unsupported(std::string(what) +
                             " looks at the keys and values of each head, and the heads of this "
                             "model share one latent (" +
                             config.architecture + ")");
}

int ThreadCount(int threads) {
  return threads != 0 ? threads
                      : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Result<Model> Model::Load(const std::string& path, const ModelOptions& options) {
  KVANT_RETURN_IF_ERROR(IsaStatus());
  KVANT_ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool,
                         ThreadPool::Create(ThreadCount(options.threads)));
  KVANT_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  Result<Impl> impl = LoadImpl(file, options, *pool);
  if (!impl.ok()) return Status(impl.status().code(), path + ": " + impl.status().message());
  impl->path = path;
  return Model(std::make_shared<const Impl>(std::move(impl).value()));
}

const std::string& Model::path() const { return impl_->path; }
const std::string& Model::architecture() const { return impl_->config.architecture; }
const std::string& Model::name() const { return impl_->config.name; }
KvGeometry Model::geometry() const { return impl_->config.geometry(); }
const std::vector<int64_t>& Model::layer_windows() const { return impl_->config.layer_windows; }
int64_t Model::context_tokens() const { return impl_->config.context_tokens; }
int Model::vocab_size() const { return impl_->config.vocab; }
int64_t Model::parameters() const { return impl_->weights.parameters; }
const Tokenizer& Model::tokenizer() const { return impl_->tokenizer; }

Result<std::vector<int32_t>> Model::EncodeChat(std::span<const ChatTurn> turns) const {
  if (!impl_->chat_template.ok()) return impl_->chat_template.status();
  std::vector<ChatMessage> messages;
  for (const ChatTurn& turn : turns) messages.push_back({turn.role, turn.content});
  KVANT_ASSIGN_OR_RETURN(const std::vector<TextPart> parts,
                         impl_->chat_template->Render(messages, true));
  return impl_->tokenizer.EncodeParts(parts);
}

int64_t Model::file_bytes() const { return impl_->file_bytes; }
uint64_t Model::file_hash() const { return impl_->file_hash; }
const std::vector<WeightTypeBytes>& Model::weight_types() const { return impl_->weights.types; }
int64_t Model::weight_bytes() const { return impl_->weights.packed_bytes(); }
int64_t Model::weight_bytes_read_per_token() const { return impl_->weights.bytes_read_per_token; }
bool Model::float_activations() const { return impl_->float_activations; }

}  // namespace kvant
