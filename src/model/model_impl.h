// What a Model is made of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kvant/model.h"
#include "model/chat_template.h"
#include "model/config.h"
#include "model/key_balance.h"
#include "model/weights.h"

namespace kvant {

struct Model::Impl {
  std::string path;
  ModelConfig config;
  Tokenizer tokenizer;
  Result<ChatTemplate> chat_template;  // or why there is none
  ModelWeights weights;
  int64_t file_bytes;
  uint64_t file_hash;
  bool float_activations;
  std::unique_ptr<LazyKeyBalance> key_balance = std::make_unique<LazyKeyBalance>();
};

// kUnsupported where all heads share a latent: `what` looks at the keys and values of each head.
Status CheckHasHeadKeys(const ModelConfig& config, std::string_view what);

// `threads` as options give it: 0 stands for one a core.
int ThreadCount(int threads);

}  // namespace kvant
