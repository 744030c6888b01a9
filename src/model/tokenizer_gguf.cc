#include "model/tokenizer_gguf.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace kvant {
namespace {

// Reads a key that may be missing into `out`, which then keeps its value.
template <typename T, typename Out>
Status ReadOptional(const GgufFile& file, std::string_view key,
                    Result<T> (GgufFile::*get)(std::string_view) const, Out& out) {
  if (file.FindEntry(key) == nullptr) return Status::Ok();
  KVANT_ASSIGN_OR_RETURN(out, (file.*get)(key));
  return Status::Ok();
}

Status ReadBpe(const GgufFile& file, TokenizerData& data) {
  // Without a name the split pattern could only be guessed, which costs quality without a sign of
  // it.
  KVANT_ASSIGN_OR_RETURN(const std::string_view pre, file.GetString("tokenizer.ggml.pre"));
  data.pre = std::string(pre);
  KVANT_ASSIGN_OR_RETURN(data.merges, file.GetStringArray("tokenizer.ggml.merges"));
  return Status::Ok();
}

// Files of this kind are older than most keys: what is not said is as the first llama had it.
Status ReadSentencePiece(const GgufFile& file, TokenizerData& data) {
  KVANT_ASSIGN_OR_RETURN(data.scores, file.GetF32Array("tokenizer.ggml.scores"));
  data.unk = 0;
  data.bos = 1;
  data.eos = 2;
  data.add_bos = true;
  data.add_space_prefix = true;
  return Status::Ok();
}

}  // namespace

Result<Tokenizer> LoadTokenizer(const GgufFile& file) {
  TokenizerData data;
  KVANT_ASSIGN_OR_RETURN(const std::string_view model, file.GetString("tokenizer.ggml.model"));
  data.model = std::string(model);
  KVANT_ASSIGN_OR_RETURN(data.tokens, file.GetStringArray("tokenizer.ggml.tokens"));
  // Another model is refused by its name, not for what it lacks.
  if (data.model == "gpt2") KVANT_RETURN_IF_ERROR(ReadBpe(file, data));
  if (data.model == "llama") KVANT_RETURN_IF_ERROR(ReadSentencePiece(file, data));
  const std::pair<std::string_view, int32_t*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &data.bos},
      {"tokenizer.ggml.eos_token_id", &data.eos},
      {"tokenizer.ggml.unknown_token_id", &data.unk},
      {"tokenizer.ggml.padding_token_id", &data.pad}};
  for (const auto& [key, id] : ids) {
    KVANT_RETURN_IF_ERROR(ReadOptional(file, key, &GgufFile::GetI32, *id));
  }
  KVANT_RETURN_IF_ERROR(
      ReadOptional(file, "tokenizer.ggml.token_type", &GgufFile::GetI32Array, data.types));
  KVANT_RETURN_IF_ERROR(
      ReadOptional(file, "tokenizer.ggml.add_bos_token", &GgufFile::GetBool, data.add_bos));
  KVANT_RETURN_IF_ERROR(ReadOptional(file, "tokenizer.ggml.add_space_prefix", &GgufFile::GetBool,
                                     data.add_space_prefix));
  bool add_eos = false;
  KVANT_RETURN_IF_ERROR(
      ReadOptional(file, "tokenizer.ggml.add_eos_token", &GgufFile::GetBool, add_eos));
  if (add_eos) {
    return Status::Unsupported(
        "tokenizer.ggml.add_eos_token asks for an end token behind every text, after which there "
        "is "
        "nothing to go on with");
  }
  return Tokenizer::Create(data);
}

Result<ChatTemplate> LoadChatTemplate(const GgufFile& file, const Tokenizer& tokenizer) {
  std::string_view source;
  KVANT_RETURN_IF_ERROR(
      ReadOptional(file, "tokenizer.chat_template", &GgufFile::GetString, source));
  const auto is_control = [&](std::string_view spelling) {
    return tokenizer.IsControl(tokenizer.FindToken(spelling).value_or(-1));
  };
  if (source.empty() && is_control("<start_of_turn>") && is_control("<end_of_turn>")) {
    return ChatTemplate::Gemma();
  }
  return ChatTemplate::Create(source);
}

}  // namespace kvant
