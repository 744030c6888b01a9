// Model: the weights, shape and vocabulary of a language model from a GGUF file.
//
// Thread rules: a Model is immutable; copies share it, and any number of sessions and threads may
// use it at once. A Session keeps its model alive.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvant/format.h"
#include "kvant/status.h"
#include "kvant/tokenizer.h"

namespace kvant {

struct ModelOptions {
  int threads = 0;  // that pack the weights; 0: one a core
  // Multiply packed weights with f32 activations instead of 8-bit ones: slower, for comparing
  // against engines that do so.
  bool float_activations = false;
};

// What the tensors of one type amount to.
struct WeightTypeBytes {
  std::string type;  // "Q4_1"
  int tensors = 0;
  int64_t file_bytes = 0;
};

struct ChatTurn {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

class Model {
 public:
  // Everything about the file is checked before its weights are packed. kNotFound, kIo, kCorrupt,
  // kUnsupported or kOutOfMemory; the message starts with the path and names key or tensor.
  static Result<Model> Load(const std::string& path, const ModelOptions& options = {});

  const std::string& path() const;
  const std::string& architecture() const;  // "llama"
  const std::string& name() const;          // as the file calls itself; may be empty
  KvGeometry geometry() const;
  // [layers] how many of the newest tokens each layer sees, its query's own included; 0: all.
  const std::vector<int64_t>& layer_windows() const;
  int64_t context_tokens() const;  // that it was trained for
  int vocab_size() const;          // logits of one position
  int64_t parameters() const;      // weights, of all tensors

  const Tokenizer& tokenizer() const;
  // A conversation as the prompt that the model was trained on, up to where the assistant begins to
  // speak. kUnsupported when the file has no chat template, or one that is not known.
  Result<std::vector<int32_t>> EncodeChat(std::span<const ChatTurn> turns) const;

  int64_t file_bytes() const;
  uint64_t file_hash() const;  // XXH64 with seed 0 of the whole file
  const std::vector<WeightTypeBytes>& weight_types() const;
  int64_t weight_bytes() const;                 // held in memory, packed
  int64_t weight_bytes_read_per_token() const;  // by one decode step
  bool float_activations() const;

  // Of the library itself.
  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<const Impl> impl_;
};

}  // namespace kvant
