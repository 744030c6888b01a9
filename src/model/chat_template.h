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
  // source: tokenizer.chat_template. Known is ChatML, with or without a system message of its own
  // for conversations that do not begin with one. kUnsupported for an empty source, and for an
  // unknown one with its first 40 characters.
  static Result<ChatTemplate> Create(std::string_view source);

  // The prompt, for Tokenizer::EncodeParts: only what the template writes may name special tokens,
  // contents may not. With add_generation_prompt it ends where the assistant begins to speak.
  // Messages are rendered as they come: two of one role in a row stay two, contents may be empty.
  // kInvalidArgument for no messages or an unknown role.
  Result<std::vector<TextPart>> Render(std::span<const ChatMessage> messages,
                                       bool add_generation_prompt) const;

 private:
  std::optional<std::string> default_system_;
};

}  // namespace kvant
