// The two halves of PtxModule::Parse: declarations (parser.cc) and the bodies of kernels
// (body_parser.cc).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptx/module.h"
#include "ptx/token_cursor.h"

namespace kvant::ptx {

// `.align 16 .b8 name[4096]` and what may follow, up to and with the semicolon (or, for params, not
// even that): the variable without its offset.
Result<Variable> ParseVariable(TokenCursor* cursor, Space space);

// The body of one kernel: `{` to `}`.
class BodyParser {
 public:
  // `outer` are the variables that the whole module sees. All three must outlive the parser.
  BodyParser(TokenCursor* cursor, const std::vector<Variable>& outer, Kernel* kernel)
      : cursor_(*cursor), outer_(outer), kernel_(*kernel) {}

  Status Parse() &&;

 private:
  // The names that one pair of braces declares: registers, and families of them (%r<96>).
  struct Scope {
    std::map<std::string, int, std::less<>> registers;
    std::map<std::string, std::pair<int, uint64_t>, std::less<>> families;  // first, count
  };

  Status ParseStatement();
  Status ParseDirective();
  Status ParseRegisters();
  Status AddVariable(Space space);
  Status AddLabel(std::string_view name);
  Status ParseInstruction();
  Status ResolveLabels();

  Result<Operand> ParseOperand();
  Result<Operand> ParseSimpleOperand();
  Result<Operand> ParseNamed(std::string_view name);
  Result<Operand> ParseVector();
  Result<Operand> ParseAddress();
  Status ParseOffset(Operand* operand);

  int FindRegister(std::string_view name) const;  // or -1
  const Variable* FindVariable(std::string_view name) const;

  TokenCursor& cursor_;
  const std::vector<Variable>& outer_;
  Kernel& kernel_;
  std::vector<Scope> scopes_;
  std::vector<Variable> locals_;
  SpaceLayout local_layout_;
  std::map<std::string, size_t, std::less<>> labels_;
  std::vector<std::string> label_uses_;  // Operand::value of a label indexes it until the end
};

}  // namespace kvant::ptx
