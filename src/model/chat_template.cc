#include "model/chat_template.h"

#include <algorithm>
#include <utility>

#include "model/unicode_bytes.h"

namespace kvant {
namespace {

// Marks in the canonical form: where a string literal begins and ends.
constexpr char kOpen = '\x01', kClose = '\x02';
constexpr std::string_view kSumSoFar = "\x02+";

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};

// A Jinja source without the white space that means nothing, its literals unescaped and marked, and
// sums of literals joined. nullopt where a literal is not closed or the source holds the marks.
std::optional<std::string> Canonical(std::string_view source) {
  if (source.find(kOpen) != source.npos || source.find(kClose) != source.npos) return std::nullopt;
  std::string out;
  bool in_tag = false;
  for (size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    const std::string_view two = source.substr(i, 2);
    if (!in_tag || two == "%}" || two == "}}") {
      in_tag = two == "{%" || two == "{{";
      const size_t length = in_tag || two == "%}" || two == "}}" ? 2 : 1;
      out += source.substr(i, length);
      i += length - 1;
    } else if (c == '\'' || c == '"') {
      if (out.ends_with(kSumSoFar)) {
        out.resize(out.size() - kSumSoFar.size());
      } else {
        out.push_back(kOpen);
      }
      for (++i; i < source.size() && source[i] != c; ++i) {
        const bool newline = source.substr(i, 2) == "\\n";
        out.push_back(newline ? '\n' : source[i]);
        i += newline;
      }
      if (i == source.size()) return std::nullopt;
      out.push_back(kClose);
    } else if (c != ' ' && c != '\n' && c != '\t') {
      out.push_back(c);
    }
  }
  return out;
}

bool Consume(std::string_view prefix, std::string_view& text) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The parts of a canonical ChatML program, in order.
constexpr std::string_view kDefaultFlag =
    "{%ifnotadd_generation_promptisdefined%}{%setadd_generation_prompt=false%}{%endif%}";
constexpr std::string_view kLoop = "{%formessageinmessages%}";
constexpr std::string_view kSystemBegin =
    "{%ifloop.firstandmessages[0][\x01role\x02]!=\x01system\x02%}{{\x01<|im_start|>system\n";
constexpr std::string_view kSystemEnd = "<|im_end|>\n\x02}}{%endif%}";
constexpr std::string_view kTurns =
    "{{\x01<|im_start|>\x02+message[\x01role\x02]+\x01\n\x02+message[\x01"
    "content\x02]+"
    "\x01<|im_end|>\n\x02}}{%endfor%}"
    "{%ifadd_generation_prompt%}{{\x01<|im_start|>assistant\n\x02}}{%endif%}";

}  // namespace

Result<ChatTemplate> ChatTemplate::Create(std::string_view source) {
  if (source.empty()) {
    return Status::Unsupported("the model has no chat template, so it takes plain prompts only");
  }
  const Status unknown = Status::Unsupported("unknown chat template that begins '" +
                                             Beginning(source) + "'; known: ChatML");
  const std::optional<std::string> canonical = Canonical(source);
  if (!canonical) return unknown;
  std::string_view rest = *canonical;
  ChatTemplate result;
  Consume(kDefaultFlag, rest);
  if (!Consume(kLoop, rest)) return unknown;
  if (Consume(kSystemBegin, rest)) {
    const size_t end = rest.find(kClose);
    const size_t system_end = rest.find(kSystemEnd);
    // The literal that began must be the one that ends in the end-of-turn mark.
    if (system_end == rest.npos || end != system_end + kSystemEnd.find(kClose)) return unknown;
    result.default_system_ = std::string(rest.substr(0, system_end));
    rest.remove_prefix(system_end + kSystemEnd.size());
  }
  if (rest != kTurns) return unknown;
  return result;
}

Result<std::vector<TextPart>> ChatTemplate::Render(std::span<const ChatMessage> messages,
                                                   bool add_generation_prompt) const {
  if (messages.empty()) return Status::InvalidArgument("a conversation needs at least one message");
  std::vector<TextPart> parts;
  const auto add_turn = [&parts](const std::string& role, const std::string& content) {
    parts.push_back({"<|im_start|>" + role + "\n", true});
    parts.push_back({content, false});
    parts.push_back({"<|im_end|>\n", true});
  };
  if (default_system_ && messages[0].role != "system") add_turn("system", *default_system_);
  for (const ChatMessage& message : messages) {
    if (std::find(std::begin(kRoles), std::end(kRoles), message.role) == std::end(kRoles)) {
      return Status::InvalidArgument("unknown role '" + Beginning(message.role) +
                                     "'; known: system, user, assistant, tool");
    }
    add_turn(message.role, message.content);
  }
  if (add_generation_prompt) parts.push_back({"<|im_start|>assistant\n", true});
  return parts;
}

}  // namespace kvant
