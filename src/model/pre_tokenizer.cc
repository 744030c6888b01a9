#include "model/pre_tokenizer.h"

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "model/unicode_bytes.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace kvant {
namespace {

// Unicode's White_Space. PCRE2's own \s also takes U+180E, which lost the property in Unicode 6.3.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

constexpr std::string_view kEachDigit = R"(\p{N})";
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                                    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Pattern {
  std::string_view name;
  std::array<std::string_view, 2> stages;  // the second may be empty
  bool ignore_merges;
  bool takes_space_prefix;
};

// All of them end a word between an ASCII letter and a space: letters are matched by runs of
// letters alone (or in the fixed 's, 't, …), and nothing looks back. BpeEncoder relies on it.
constexpr Pattern kPatterns[] = {
    {"gpt-2", {kGpt2}, false, true},       {"gpt2", {kGpt2}, false, true},
    {"llama-bpe", {kLlama3}, true, false}, {"llama3", {kLlama3}, true, false},
    {"qwen2", {kQwen2}, false, false},     {"smollm", {kEachDigit, kGpt2}, false, false},
};

// Writes kWhiteSpace for \s and its complement for \S. REQUIRES: no \S inside a class.
std::string ExpandWhiteSpace(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\') {
      if (pattern[i] == '[') in_class = true;
      if (pattern[i] == ']') in_class = false;
      out.push_back(pattern[i]);
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      out.append(in_class ? "" : "[").append(kWhiteSpace).append(in_class ? "" : "]");
    } else if (escaped == 'S') {
      out.append("[^").append(kWhiteSpace).append("]");
    } else {
      out.append({'\\', escaped});
    }
  }
  return out;
}

std::string PcreMessage(int code) {
  std::array<PCRE2_UCHAR, 128> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

}  // namespace

class PreTokenizer::Stage {
 public:
  static Result<Stage> Create(std::string_view pattern) {
    const std::string expanded = ExpandWhiteSpace(pattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    Stage stage;
    stage.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expanded.data()), expanded.size(),
                                    PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    if (stage.code_ == nullptr) {
      return Status::Unsupported("this PCRE2 cannot compile the split pattern '" + expanded +
                                 "': " + PcreMessage(error));
    }
    // Without a JIT the interpreter runs the same pattern, only slower.
    (void)pcre2_jit_compile(stage.code_.get(), PCRE2_JIT_COMPLETE);
    return stage;
  }

  Status Split(std::string_view text, std::vector<std::string_view>& words) const {
    const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
    if (match == nullptr) return Status::OutOfMemory("cannot allocate the split pattern's state");
    size_t begin = 0;  // of what has not been handed out
    while (begin < text.size()) {
      const int rc =
          pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), begin,
                      PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), nullptr);
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) {
        return Status::OutOfRange("the split pattern gave up at byte " + std::to_string(begin) +
                                  " of " + std::to_string(text.size()) + ": " + PcreMessage(rc));
      }
      const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.get());
      if (span[0] > begin) words.push_back(text.substr(begin, span[0] - begin));
      words.push_back(text.substr(span[0], span[1] - span[0]));
      begin = span[1];
    }
    if (begin < text.size()) words.push_back(text.substr(begin));
    return Status::Ok();
  }

 private:
  std::unique_ptr<pcre2_code, FreeCode> code_;
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::Create(std::string_view name) {
  std::string known;
  for (const Pattern& pattern : kPatterns) {
    if (pattern.name != name) {
      known.append(known.empty() ? "" : ", ").append(pattern.name);
      continue;
    }
    PreTokenizer result;
    for (const std::string_view expression : pattern.stages) {
      if (expression.empty()) continue;
      KVANT_ASSIGN_OR_RETURN(Stage stage, Stage::Create(expression));
      result.stages_.push_back(std::move(stage));
    }
    result.ignore_merges_ = pattern.ignore_merges;
    result.takes_space_prefix_ = pattern.takes_space_prefix;
    return result;
  }
  return Status::Unsupported("unknown pre-tokenizer '" + Beginning(name) + "'; known: " + known);
}

Status PreTokenizer::Split(std::string_view text, std::vector<std::string_view>& words) const {
  if (stages_.size() == 1) return stages_[0].Split(text, words);
  std::vector<std::string_view> pieces = {text}, finer;
  for (size_t i = 0; i + 1 < stages_.size(); ++i) {
    finer.clear();
    for (const std::string_view piece : pieces)
      KVANT_RETURN_IF_ERROR(stages_[i].Split(piece, finer));
    pieces.swap(finer);
  }
  for (const std::string_view piece : pieces) {
    KVANT_RETURN_IF_ERROR(stages_.back().Split(piece, words));
  }
  return Status::Ok();
}

}  // namespace kvant
