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
constexpr std::string_view kWhiteSpace = " \n\t";

// Takes white space off the end of the text outside of tags. Literals end in kClose, tags in '}'.
void DropTrailingSpace(std::string& out) { out.resize(out.find_last_not_of(kWhiteSpace) + 1); }

// A Jinja source without the white space that means nothing or that tags with a dash take away, its
// literals unescaped and marked, and sums of literals joined. nullopt where a literal is not closed
// or the source holds the marks.
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
      const bool dash = in_tag && source.substr(i + 2, 1) == "-";
      if (dash) DropTrailingSpace(out);
      out += source.substr(i, length);
      i += length - 1 + dash;
    } else if (two == "-%" || two == "-}") {
      const size_t close = i + 1;
      if (source.substr(close + 1, 1) != "}") return std::nullopt;
      out += source.substr(close, 2);
      in_tag = false;
      i = std::min(source.find_first_not_of(kWhiteSpace, close + 2), source.size()) - 1;
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
    } else if (kWhiteSpace.find(c) == kWhiteSpace.npos) {
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

// A canonical program of Gemma 3. Contents that are lists are pictures', which kvant has none of.
constexpr std::string_view kGemma =
    "{{bos_token}}{%ifmessages[0][\x01role\x02]==\x01system\x02%}"
    "{%ifmessages[0][\x01"
    "content\x02]isstring%}{%setfirst_user_prefix=messages[0][\x01"
    "content\x02]+\x01\n\n\x02%}"
    "{%else%}{%setfirst_user_prefix=messages[0][\x01"
    "content\x02][0][\x01text\x02]+\x01\n\n\x02%}{%endif%}"
    "{%setloop_messages=messages[1:]%}{%else%}{%setfirst_user_prefix=\x01\x02%}"
    "{%setloop_messages=messages%}{%endif%}{%formessageinloop_messages%}"
    "{%if(message[\x01role\x02]==\x01user\x02)!=(loop.index0%2==0)%}"
    "{{raise_exception(\x01"
    "Conversation roles must alternate user/assistant/user/assistant/...\x02)}}{%endif%}"
    "{%if(message[\x01role\x02]==\x01"
    "assistant\x02)%}{%setrole=\x01model\x02%}{%else%}{%setrole=message[\x01role\x02]%}{%endif%}"
    "{{\x01<start_of_turn>\x02+role+\x01\n\x02+(first_user_prefixifloop.firstelse\x01\x02)}}"
    "{%ifmessage[\x01"
    "content\x02]isstring%}{{message[\x01"
    "content\x02]|trim}}{%elifmessage[\x01"
    "content\x02]isiterable%}{%foriteminmessage[\x01"
    "content\x02]%}{%ifitem[\x01type\x02]==\x01image\x02%}{{\x01<start_of_image>\x02}}"
    "{%elifitem[\x01type\x02]==\x01text\x02%}{{item[\x01text\x02]|trim}}{%endif%}{%endfor%}"
    "{%else%}{{raise_exception(\x01Invalid content type\x02)}}{%endif%}{{\x01<end_of_turn>\n\x02}}"
    "{%endfor%}{%ifadd_generation_prompt%}{{\x01<start_of_turn>model\n\x02}}{%endif%}";

// White space as Python's str.strip, Jinja's trim, knows it.
bool IsWhiteSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

std::string_view Trim(std::string_view text) {
  size_t begin = 0, end = 0;  // of what lies between the first and the last other character
  bool found = false;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = ReadUtf8(text.substr(i));
    const size_t next = i + static_cast<size_t>(c.bytes);
    if (c.kind != Utf8Kind::kComplete || !IsWhiteSpace(c.code_point)) {
      if (!found) begin = i;
      found = true;
      end = next;
    }
    i = next;
  }
  return text.substr(begin, end - begin);
}

// Gemma's turns of user and model. The system message, if any, has been split off.
Result<std::vector<TextPart>> RenderGemma(std::span<const ChatMessage> messages,
                                          std::string first_user_prefix,
                                          bool add_generation_prompt) {
  if (messages.empty()) {
    return Status::InvalidArgument("this model's conversations need a message of the user");
  }
  std::vector<TextPart> parts;
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool user = i % 2 == 0;
    if (messages[i].role != (user ? "user" : "assistant")) {
      return Status::InvalidArgument("message " + std::to_string(i) + " is of the role '" +
                                     Beginning(messages[i].role) +
                                     "'; this model's turns are user, assistant, user, …, after at "
                                     "most one of the system");
    }
    parts.push_back({user ? "<start_of_turn>user\n" : "<start_of_turn>model\n", true});
    parts.push_back(
        {std::exchange(first_user_prefix, {}).append(Trim(messages[i].content)), false});
    parts.push_back({"<end_of_turn>\n", true});
  }
  if (add_generation_prompt) parts.push_back({"<start_of_turn>model\n", true});
  return parts;
}

}  // namespace

ChatTemplate ChatTemplate::Gemma() { return ChatTemplate(Kind::kGemma); }

Result<ChatTemplate> ChatTemplate::Create(std::string_view source) {
  if (source.empty()) {
    return Status::Unsupported("the model has no chat template, so it takes plain prompts only");
  }
  const Status unknown = Status::Unsupported("unknown chat template that begins '" +
                                             Beginning(source) + "'; known: ChatML, Gemma 3");
  const std::optional<std::string> canonical = Canonical(source);
  if (!canonical) return unknown;
  std::string_view rest = *canonical;
  if (rest == kGemma) return Gemma();
  ChatTemplate result(Kind::kChatMl);
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
  for (const ChatMessage& message : messages) {
    if (std::find(std::begin(kRoles), std::end(kRoles), message.role) != std::end(kRoles)) continue;
    return Status::InvalidArgument("unknown role '" + Beginning(message.role) +
                                   "'; known: system, user, assistant, tool");
  }
  if (kind_ == Kind::kChatMl) return RenderChatMl(messages, add_generation_prompt);
  const bool has_system = messages[0].role == "system";
  return RenderGemma(messages.subspan(has_system ? 1 : 0),
                     has_system ? messages[0].content + "\n\n" : std::string(),
                     add_generation_prompt);
}

Result<std::vector<TextPart>> ChatTemplate::RenderChatMl(std::span<const ChatMessage> messages,
                                                         bool add_generation_prompt) const {
  std::vector<TextPart> parts;
  const auto add_turn = [&parts](const std::string& role, const std::string& content) {
    parts.push_back({"<|im_start|>" + role + "\n", true});
    parts.push_back({content, false});
    parts.push_back({"<|im_end|>\n", true});
  };
  if (default_system_ && messages[0].role != "system") add_turn("system", *default_system_);
  for (const ChatMessage& message : messages) add_turn(message.role, message.content);
  if (add_generation_prompt) parts.push_back({"<|im_start|>assistant\n", true});
  return parts;
}

}  // namespace kvant
