// A position in a list of tokens.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptx/lexer.h"

namespace kvant::ptx {

class TokenCursor {
 public:
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Peek() const { return tokens_[at_]; }
  int line() const { return Peek().line; }

  // The last token, kEnd, is never passed.
  Token Take() {
    const Token token = tokens_[at_];
    if (token.kind != Token::Kind::kEnd) ++at_;
    return token;
  }
  void SkipLine(int line_number) {
    while (line() == line_number && Peek().kind != Token::Kind::kEnd) Take();
  }
  bool Accept(std::string_view text) {
    if (!Peek().Is(text)) return false;
    Take();
    return true;
  }

  Status Expect(std::string_view text) {
    if (Accept(text)) return Status::Ok();
    return Unexpected("'" + std::string(text) + "'");
  }
  Result<std::string_view> ExpectWord(std::string_view what) {
    if (Peek().kind != Token::Kind::kWord) return Unexpected(what);
    return Take().text;
  }
  // An integer, with a sign where there is one; floats (0f, 0d) give their bits.
  Result<uint64_t> ExpectNumber(std::string_view what);

  Status Unexpected(std::string_view wanted) const {
    return Status::Corrupt(AtLine(
        line(), std::string(wanted) + " is expected, not '" + std::string(Peek().text) + "'"));
  }

 private:
  std::vector<Token> tokens_;  // ends with kEnd
  size_t at_ = 0;
};

}  // namespace kvant::ptx
