#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "ptx/opcodes.h"
#include "ptx/parser.h"

namespace kvant::ptx {
namespace {

// In the order of Special.
constexpr auto kSpecials = std::to_array<std::string_view>({
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
    "%laneid",
    "%lanemask_eq",
    "%lanemask_le",
    "%lanemask_lt",
    "%lanemask_ge",
    "%lanemask_gt",
});

// An undeclared bound would make a register family of any size.
constexpr uint64_t kMaxRegisters = 1 << 16;

std::optional<Special> FindSpecial(std::string_view name) {
  const auto found = std::find(kSpecials.begin(), kSpecials.end(), name);
  if (found == kSpecials.end()) return std::nullopt;
  return static_cast<Special>(found - kSpecials.begin());
}

}  // namespace

Status BodyParser::Parse() && {
  KVANT_RETURN_IF_ERROR(cursor_.Expect("{"));
  scopes_.emplace_back();
  while (!scopes_.empty()) KVANT_RETURN_IF_ERROR(ParseStatement());
  kernel_.local_bytes = local_layout_.bytes;
  return ResolveLabels();
}

Status BodyParser::ParseStatement() {
  const Token& token = cursor_.Peek();
  if (token.Is("{")) {
    cursor_.Take();
    scopes_.emplace_back();
    return Status::Ok();
  }
  if (token.Is("}")) {
    cursor_.Take();
    scopes_.pop_back();
    return Status::Ok();
  }
  if (cursor_.Accept(";")) return Status::Ok();  // inline assembly often ends with one too many
  if (token.text.starts_with('.')) return ParseDirective();
  return ParseInstruction();
}

Status BodyParser::ParseDirective() {
  const Token directive = cursor_.Take();
  if (directive.Is(".reg")) return ParseRegisters();
  if (directive.Is(".shared")) return AddVariable(Space::kShared);
  if (directive.Is(".local")) return AddVariable(Space::kLocal);
  if (directive.Is(".pragma")) {  // "nounroll": a wish to the assembler
    cursor_.Take();
    return cursor_.Expect(";");
  }
  if (directive.Is(".loc")) {
    cursor_.SkipLine(directive.line);
    return Status::Ok();
  }
  return Status::Unsupported(AtLine(
      directive.line, "the directive '" + std::string(directive.text) + "' is not supported"));
}

Status BodyParser::ParseRegisters() {
  const int line = cursor_.line();
  KVANT_ASSIGN_OR_RETURN(const std::string_view word, cursor_.ExpectWord("a type"));
  const std::optional<Type> type = FindType(word.substr(1));
  if (!type) {
    return Status::Unsupported(
        AtLine(line, "registers of type '" + std::string(word) + "' are not supported"));
  }
  do {
    KVANT_ASSIGN_OR_RETURN(const std::string_view name, cursor_.ExpectWord("a register"));
    const int first = static_cast<int>(kernel_.registers.size());
    if (!cursor_.Accept("<")) {
      scopes_.back().registers.insert_or_assign(std::string(name), first);
      kernel_.registers.push_back({std::string(name), *type});
      continue;
    }
    KVANT_ASSIGN_OR_RETURN(const uint64_t count, cursor_.ExpectNumber("a count"));
    KVANT_RETURN_IF_ERROR(cursor_.Expect(">"));
    if (count > kMaxRegisters - kernel_.registers.size()) {
      return Status::Corrupt(AtLine(line, "more than 65536 registers"));
    }
    scopes_.back().families.insert_or_assign(std::string(name), std::pair(first, count));
    for (uint64_t i = 0; i < count; ++i) {
      kernel_.registers.push_back({std::string(name) + std::to_string(i), *type});
    }
  } while (cursor_.Accept(","));
  return cursor_.Expect(";");
}

Status BodyParser::AddVariable(Space space) {
  KVANT_ASSIGN_OR_RETURN(Variable variable, ParseVariable(&cursor_, space));
  if (space == Space::kLocal) {
    variable.offset = local_layout_.Place(variable.bytes, variable.alignment);
  } else {
    SpaceLayout layout{kernel_.shared_bytes};
    variable.offset = layout.Place(variable.bytes, variable.alignment);
    kernel_.shared_bytes = layout.bytes;
  }
  locals_.push_back(std::move(variable));
  return cursor_.Expect(";");
}

Status BodyParser::AddLabel(std::string_view name) {
  if (labels_.emplace(std::string(name), kernel_.code.size()).second) return Status::Ok();
  return Status::Corrupt(
      AtLine(cursor_.line(), "the label '" + std::string(name) + "' occurs twice"));
}

Status BodyParser::ParseInstruction() {
  Instruction instruction;
  instruction.line = cursor_.line();
  if (cursor_.Accept("@")) {
    instruction.guard_is_negated = cursor_.Accept("!");
    KVANT_ASSIGN_OR_RETURN(const std::string_view guard, cursor_.ExpectWord("a predicate"));
    instruction.guard = FindRegister(guard);
    if (instruction.guard < 0 || kernel_.registers[instruction.guard].type != Type::kPred) {
      return Status::Corrupt(
          AtLine(instruction.line, "'" + std::string(guard) + "' is no predicate register"));
    }
  }
  KVANT_ASSIGN_OR_RETURN(const std::string_view word, cursor_.ExpectWord("an instruction"));
  if (instruction.guard < 0 && cursor_.Accept(":")) return AddLabel(word);
  if (!IsKnownOpcode(word)) {
    return Status::Unsupported(
        AtLine(instruction.line, "'" + std::string(word) + "' is not supported"));
  }
  instruction.name = std::string(word);
  while (!cursor_.Accept(";")) {
    if (!instruction.operands.empty()) KVANT_RETURN_IF_ERROR(cursor_.Expect(","));
    KVANT_ASSIGN_OR_RETURN(Operand operand, ParseOperand());
    instruction.operands.push_back(std::move(operand));
  }
  KVANT_RETURN_IF_ERROR(Decode(&instruction));
  kernel_.code.push_back(std::move(instruction));
  return Status::Ok();
}

Status BodyParser::ResolveLabels() {
  for (Instruction& instruction : kernel_.code) {
    for (Operand& operand : instruction.operands) {
      if (operand.kind != Operand::Kind::kLabel) continue;
      const std::string& name = label_uses_[operand.value];
      const auto found = labels_.find(name);
      if (found == labels_.end()) {
        return Status::Corrupt(AtLine(instruction.line, "'" + name + "' is not declared"));
      }
      operand.value = found->second;
    }
  }
  return Status::Ok();
}

Result<Operand> BodyParser::ParseOperand() {
  KVANT_ASSIGN_OR_RETURN(Operand operand, ParseSimpleOperand());
  if (!cursor_.Accept("|")) return operand;
  KVANT_ASSIGN_OR_RETURN(Operand second, ParseSimpleOperand());
  Operand pair;
  pair.kind = Operand::Kind::kPair;
  pair.elements = {std::move(operand), std::move(second)};
  return pair;
}

Result<Operand> BodyParser::ParseSimpleOperand() {
  if (cursor_.Accept("{")) return ParseVector();
  if (cursor_.Accept("[")) return ParseAddress();
  if (cursor_.Accept("!")) {
    KVANT_ASSIGN_OR_RETURN(Operand operand, ParseSimpleOperand());
    const bool is_predicate = operand.kind == Operand::Kind::kRegister &&
                              kernel_.registers[operand.reg].type == Type::kPred;
    if (!is_predicate) return cursor_.Unexpected("a predicate");
    operand.is_negated = true;
    return operand;
  }
  if (cursor_.Peek().kind == Token::Kind::kWord) return ParseNamed(cursor_.Take().text);
  Operand operand;
  KVANT_ASSIGN_OR_RETURN(operand.value, cursor_.ExpectNumber("an operand"));
  return operand;
}

Result<Operand> BodyParser::ParseNamed(std::string_view name) {
  Operand operand;
  if (name == "_") {
    operand.kind = Operand::Kind::kSink;
  } else if (const int reg = FindRegister(name); reg >= 0) {
    operand.kind = Operand::Kind::kRegister;
    operand.reg = reg;
  } else if (const std::optional<Special> special = FindSpecial(name)) {
    operand.kind = Operand::Kind::kSpecial;
    operand.special = *special;
  } else if (const Variable* variable = FindVariable(name)) {
    operand.kind = Operand::Kind::kSymbol;
    operand.space = variable->space;
    const bool is_dynamic = variable->space == Space::kShared && variable->bytes == 0;
    operand.value = is_dynamic ? kernel_.dynamic_shared_offset() : variable->offset;
    if (variable->space == Space::kGlobal) operand.value += kGlobalsWindow;
    KVANT_RETURN_IF_ERROR(ParseOffset(&operand));
  } else if (name.starts_with('%')) {
    return Status::Unsupported(
        AtLine(cursor_.line(), "'" + std::string(name) + "' is no register that is known"));
  } else {
    operand.kind = Operand::Kind::kLabel;
    operand.value = label_uses_.size();
    label_uses_.emplace_back(name);
  }
  return operand;
}

Result<Operand> BodyParser::ParseVector() {
  Operand vector;
  vector.kind = Operand::Kind::kVector;
  do {
    KVANT_ASSIGN_OR_RETURN(Operand element, ParseSimpleOperand());
    vector.elements.push_back(std::move(element));
  } while (cursor_.Accept(","));
  KVANT_RETURN_IF_ERROR(cursor_.Expect("}"));
  return vector;
}

Result<Operand> BodyParser::ParseAddress() {
  KVANT_ASSIGN_OR_RETURN(Operand operand, ParseSimpleOperand());
  const bool is_base = operand.kind == Operand::Kind::kRegister ||
                       operand.kind == Operand::Kind::kSymbol ||
                       operand.kind == Operand::Kind::kImmediate;
  if (!is_base) return cursor_.Unexpected("an address");
  operand.kind = Operand::Kind::kAddress;
  KVANT_RETURN_IF_ERROR(ParseOffset(&operand));
  KVANT_RETURN_IF_ERROR(cursor_.Expect("]"));
  return operand;
}

// "+4", "+-4", "-4" or nothing.
Status BodyParser::ParseOffset(Operand* operand) {
  if (!cursor_.Accept("+") && !cursor_.Peek().Is("-")) return Status::Ok();
  KVANT_ASSIGN_OR_RETURN(const uint64_t offset, cursor_.ExpectNumber("an offset"));
  operand->value += offset;
  return Status::Ok();
}

int BodyParser::FindRegister(std::string_view name) const {
  const size_t last = name.find_last_not_of("0123456789");
  const size_t digits = last == name.npos ? 0 : last + 1;
  uint64_t index = 0;
  const auto number = std::from_chars(name.data() + digits, name.data() + name.size(), index);
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto exact = scope->registers.find(name);
    if (exact != scope->registers.end()) return exact->second;
    const auto family = scope->families.find(name.substr(0, digits));
    if (family == scope->families.end() || number.ec != std::errc()) continue;
    if (index < family->second.second) return family->second.first + static_cast<int>(index);
  }
  return -1;
}

const Variable* BodyParser::FindVariable(std::string_view name) const {
  const std::vector<Variable>* const scopes[] = {&locals_, &kernel_.params, &outer_};
  for (const std::vector<Variable>* variables : scopes) {
    for (const Variable& variable : *variables) {
      if (variable.name == name) return &variable;
    }
  }
  return nullptr;
}

}  // namespace kvant::ptx
