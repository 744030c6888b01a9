// PreTokenizer: cuts text into words before BPE, by a named split pattern.
//
// A pattern is a list of regular expressions run in turn; each cuts the words that the one before
// left, and both its matches and the gaps between them are words. A lookahead sees the end of its
// word as the end of the text, so the stages cannot be joined into one expression: "a   1" cut at
// digits first keeps its three spaces together.
// Text is taken as it is: "qwen2" was trained on NFC, which a text in another form is not brought
// to. Thread rules: immutable; all calls may run concurrently.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

class PreTokenizer {
 public:
  // kUnsupported names an unknown pattern and lists the known ones.
  static Result<PreTokenizer> Create(std::string_view name);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Appends views into `text` that cover it in order. REQUIRES: text is valid UTF-8.
  // kOutOfRange when the expression engine gives up on the text; `words` is then unspecified.
  Status Split(std::string_view text, std::vector<std::string_view>& words) const;

  // Whether a word that is itself a token skips the merges.
  bool ignore_merges() const { return ignore_merges_; }
  // Whether TokenizerData::add_space_prefix has a meaning for this pattern.
  bool takes_space_prefix() const { return takes_space_prefix_; }

 private:
  class Stage;
  PreTokenizer();

  std::vector<Stage> stages_;
  bool ignore_merges_ = false;
  bool takes_space_prefix_ = false;
};

}  // namespace kvant
