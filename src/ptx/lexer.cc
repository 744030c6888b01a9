#include "ptx/lexer.h"

#include <algorithm>
#include <cctype>

namespace kvant::ptx {
namespace {

bool IsWordStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : rest_(source) {}

  Result<std::vector<Token>> Run() && {
    for (;;) {
      KVANT_RETURN_IF_ERROR(SkipBlanks());
      if (rest_.empty()) break;
      KVANT_RETURN_IF_ERROR(TakeToken());
    }
    tokens_.push_back({Token::Kind::kEnd, "the end of the text", line_});
    return std::move(tokens_);
  }

 private:
  void Advance(size_t n) {
    line_ += static_cast<int>(std::count(rest_.begin(), rest_.begin() + n, '\n'));
    rest_.remove_prefix(n);
  }

  Status SkipBlanks() {
    for (;;) {
      if (rest_.starts_with("//")) {
        Advance(std::min(rest_.find('\n'), rest_.size()));
      } else if (rest_.starts_with("/*")) {
        const size_t end = rest_.find("*/", 2);
        if (end == rest_.npos) return Status::Corrupt(AtLine(line_, "a comment does not end"));
        Advance(end + 2);
      } else if (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0]))) {
        Advance(1);
      } else {
        return Status::Ok();
      }
    }
  }

  Status TakeToken() {
    const char c = rest_[0];
    if (c == '"') {
      const size_t end = rest_.find('"', 1);
      if (end == rest_.npos) return Status::Corrupt(AtLine(line_, "a string does not end"));
      tokens_.push_back({Token::Kind::kString, rest_.substr(1, end - 1), line_});
      Advance(end + 1);
    } else if (IsWordStart(c)) {
      Push(Token::Kind::kWord, WordBytes());
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      Push(Token::Kind::kNumber, WordBytes());
    } else if (std::string_view(",;{}[]()+-|!@:=<>").find(c) != std::string_view::npos) {
      Push(Token::Kind::kPunctuation, 1);
    } else {
      return Status::Corrupt(AtLine(line_, std::string("the character '") + c + "' is not PTX"));
    }
    return Status::Ok();
  }

  // A modifier may hold "::" (L2::128B); a single colon ends a label.
  size_t WordBytes() const {
    size_t n = 1;
    while (n < rest_.size()) {
      if (IsWordStart(rest_[n]) || std::isdigit(static_cast<unsigned char>(rest_[n]))) {
        ++n;
      } else if (rest_.substr(n).starts_with("::")) {
        n += 2;
      } else {
        break;
      }
    }
    return n;
  }

  void Push(Token::Kind kind, size_t n) {
    tokens_.push_back({kind, rest_.substr(0, n), line_});
    Advance(n);
  }

  std::string_view rest_;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::string AtLine(int line, std::string_view message) {
  return "line " + std::to_string(line) + ": " + std::string(message);
}

Result<std::vector<Token>> Lex(std::string_view source) { return Lexer(source).Run(); }

}  // namespace kvant::ptx
