// ChatTemplate: a conversation as the prompt that a chat model was trained on.
//
// Model files carry their format as a Jinja program. kvant runs no such program: it recognises the
// ones it knows exactly, takes their constants, and refuses all others.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"
#include "kvant/tokenizer.h"

namespace kvant {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant" or "tool"
  std::string content;
};

// Thread rules: immutable.
class ChatTemplate {
 public:
  // source: tokenizer.chat_template. Known are ChatML, with or without a system message of its own
  // for conversations that do not begin with one, and that of Gemma 3. kUnsupported for an empty
  // source, and for an unknown one with its first 40 characters.
  static Result<ChatTemplate> Create(std::string_view source);
  static ChatTemplate Gemma();

  // The prompt, for Tokenizer::EncodeParts: only what the template writes may name special tokens,
  // contents may not. With add_generation_prompt it ends where the assistant begins to speak. A bos
  // that the template writes is left to the tokenizer. kInvalidArgument for no messages, an unknown
  // role, or what the model's own template refuses.
  //
  // ChatML renders messages as they come: two of one role in a row stay two, contents may be empty.
  // Gemma wants user and assistant in turns, takes the white space around contents away, and has a
  // system message only at the beginning, where it becomes the head of the user's first turn.
  Result<std::vector<TextPart>> Render(std::span<const ChatMessage> messages,
                                       bool add_generation_prompt) const;

 private:
  enum class Kind { kChatMl, kGemma };
  explicit ChatTemplate(Kind kind) : kind_(kind) {}
  Result<std::vector<TextPart>> RenderChatMl(std::span<const ChatMessage> messages,
                                             bool add_generation_prompt) const;

  Kind kind_;
  std::optional<std::string> default_system_;  // ChatML's
};

}  // namespace kvant
