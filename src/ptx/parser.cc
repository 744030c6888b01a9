#include "ptx/parser.h"

#include <cstring>
#include <optional>

namespace kvant::ptx {
namespace {

// nvcc aligns no variable to more.
constexpr uint64_t kMaxAlignment = 1024;
// More than any device has; a larger size is a typing error, and must not be allocated.
constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 30;

std::optional<Space> VariableSpace(std::string_view directive) {
  if (directive == ".global") return Space::kGlobal;
  if (directive == ".const") return Space::kConst;
  if (directive == ".shared") return Space::kShared;
  if (directive == ".local") return Space::kLocal;
  if (directive == ".param") return Space::kParam;
  return std::nullopt;
}

bool IsLinkage(std::string_view directive) {
  return directive == ".visible" || directive == ".weak" || directive == ".extern" ||
         directive == ".common";
}

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : cursor_(std::move(tokens)) {}

  Result<PtxModule> Run() && {
    while (cursor_.Peek().kind != Token::Kind::kEnd) KVANT_RETURN_IF_ERROR(ParseDeclaration());
    for (const Variable& variable : shared_) {
      if (variable.space != Space::kShared) module_.variables.push_back(variable);
    }
    return std::move(module_);
  }

 private:
  Status ParseDeclaration() {
    const int line = cursor_.line();
    KVANT_ASSIGN_OR_RETURN(std::string_view word, cursor_.ExpectWord("a directive"));
    while (IsLinkage(word)) {
      KVANT_ASSIGN_OR_RETURN(word, cursor_.ExpectWord("a declaration"));
    }
    if (word == ".version") return SkipNumber();
    if (word == ".address_size") return SkipNumber();
    if (word == ".target") return ParseTarget();
    if (word == ".entry") return ParseKernel();
    if (word == ".file") return SkipLine(line);
    const std::optional<Space> space = VariableSpace(word);
    if (space && *space != Space::kParam && *space != Space::kLocal) return AddVariable(*space);
    return Status::Unsupported(
        AtLine(line, "the directive '" + std::string(word) + "' is not supported"));
  }

  // Versions are written with a point (9.0), which is no integer.
  Status SkipNumber() {
    if (cursor_.Peek().kind != Token::Kind::kNumber) return cursor_.Unexpected("a number");
    cursor_.Take();
    return Status::Ok();
  }

  Status SkipLine(int line) {
    cursor_.SkipLine(line);
    return Status::Ok();
  }

  Status ParseTarget() {
    KVANT_ASSIGN_OR_RETURN(const std::string_view target, cursor_.ExpectWord("a target"));
    module_.target = std::string(target);
    while (cursor_.Accept(",")) {
      KVANT_RETURN_IF_ERROR(cursor_.ExpectWord("a target's option").status());
    }
    return Status::Ok();
  }

  Status AddVariable(Space space) {
    KVANT_ASSIGN_OR_RETURN(Variable variable, ParseVariable(&cursor_, space));
    KVANT_RETURN_IF_ERROR(cursor_.Expect(";"));
    SpaceLayout& layout = space == Space::kShared  ? shared_layout_
                          : space == Space::kConst ? const_layout_
                                                   : global_layout_;
    variable.offset = layout.Place(variable.bytes, variable.alignment);
    module_.global_bytes = global_layout_.bytes;
    module_.const_bytes = const_layout_.bytes;
    shared_.push_back(std::move(variable));
    return Status::Ok();
  }

  Status ParseKernel() {
    Kernel kernel;
    const int line = cursor_.line();
    KVANT_ASSIGN_OR_RETURN(const std::string_view name, cursor_.ExpectWord("a kernel's name"));
    kernel.name = std::string(name);
    if (module_.Find(name).ok()) {
      return Status::Corrupt(AtLine(line, "kernel '" + kernel.name + "' is defined twice"));
    }
    kernel.shared_bytes = shared_layout_.bytes;
    KVANT_RETURN_IF_ERROR(ParseParams(&kernel));
    while (!cursor_.Peek().Is("{")) KVANT_RETURN_IF_ERROR(ParseTuning(&kernel));
    KVANT_RETURN_IF_ERROR(BodyParser(&cursor_, shared_, &kernel).Parse());
    module_.kernels.push_back(std::move(kernel));
    return Status::Ok();
  }

  Status ParseParams(Kernel* kernel) {
    if (!cursor_.Accept("(")) return Status::Ok();
    SpaceLayout layout;
    while (!cursor_.Accept(")")) {
      if (!kernel->params.empty()) KVANT_RETURN_IF_ERROR(cursor_.Expect(","));
      KVANT_RETURN_IF_ERROR(cursor_.Expect(".param"));
      KVANT_ASSIGN_OR_RETURN(Variable param, ParseVariable(&cursor_, Space::kParam));
      param.offset = layout.Place(param.bytes, param.alignment);
      kernel->params.push_back(std::move(param));
    }
    kernel->param_bytes = layout.bytes;
    return Status::Ok();
  }

  // .maxntid 128, 1, 1 and what else stands between a kernel's head and its body.
  Status ParseTuning(Kernel* kernel) {
    const int line = cursor_.line();
    KVANT_ASSIGN_OR_RETURN(const std::string_view word, cursor_.ExpectWord("a kernel's body"));
    if (word != ".maxntid" && word != ".reqntid" && word != ".minnctapersm" && word != ".maxnreg") {
      return Status::Unsupported(
          AtLine(line, "the directive '" + std::string(word) + "' is not supported"));
    }
    uint64_t product = 1;
    do {
      KVANT_ASSIGN_OR_RETURN(const uint64_t count, cursor_.ExpectNumber("a count"));
      product *= count;
    } while (cursor_.Accept(","));
    if (word == ".maxntid" || word == ".reqntid") kernel->max_threads = product;
    return Status::Ok();
  }

  TokenCursor cursor_;
  PtxModule module_;
  std::vector<Variable> shared_;  // by all kernels
  SpaceLayout shared_layout_;
  SpaceLayout const_layout_;
  SpaceLayout global_layout_;
};

Status ParseValues(TokenCursor* cursor, Type type, Variable* variable) {
  const auto element_bytes = static_cast<size_t>(Bytes(type));
  const bool is_list = cursor->Accept("{");
  size_t at = 0;
  variable->initial.resize(variable->bytes);
  do {
    KVANT_ASSIGN_OR_RETURN(const uint64_t value, cursor->ExpectNumber("a value"));
    if (at + element_bytes > variable->bytes) {
      return Status::Corrupt(
          AtLine(cursor->line(), "'" + variable->name + "' has more values than room"));
    }
    std::memcpy(variable->initial.data() + at, &value, element_bytes);
    at += element_bytes;
  } while (cursor->Accept(","));
  return is_list ? cursor->Expect("}") : Status::Ok();
}

}  // namespace

Result<Variable> ParseVariable(TokenCursor* cursor, Space space) {
  Variable variable;
  variable.space = space;
  uint64_t alignment = 0;
  std::optional<Type> type;
  while (!type) {
    const int line = cursor->line();
    KVANT_ASSIGN_OR_RETURN(const std::string_view word, cursor->ExpectWord("a type"));
    if (word == ".align") {
      KVANT_ASSIGN_OR_RETURN(alignment, cursor->ExpectNumber("an alignment"));
    } else if (word == ".ptr" || VariableSpace(word)) {
      continue;  // .param .u64 .ptr .global .align 16: of the memory pointed to, which is checked
    } else {
      type = FindType(word.substr(1));
      if (!type || *type == Type::kPred) {
        return Status::Unsupported(
            AtLine(line, "a variable of type '" + std::string(word) + "' is not supported"));
      }
    }
  }
  variable.alignment = static_cast<uint64_t>(Bytes(*type));
  while (cursor->Peek().Is(".ptr") || cursor->Peek().Is(".align") ||
         VariableSpace(cursor->Peek().text)) {
    if (cursor->Take().Is(".align")) {
      KVANT_RETURN_IF_ERROR(cursor->ExpectNumber("an alignment").status());
    }
  }
  const int line = cursor->line();
  KVANT_ASSIGN_OR_RETURN(const std::string_view name, cursor->ExpectWord("a name"));
  variable.name = std::string(name);
  uint64_t count = 1;
  while (cursor->Accept("[")) {
    if (cursor->Accept("]")) {  // shared memory whose size the launch gives
      count = 0;
      continue;
    }
    KVANT_ASSIGN_OR_RETURN(const uint64_t extent, cursor->ExpectNumber("a size"));
    const bool fits = extent <= kMaxVariableBytes && count <= kMaxVariableBytes;
    count = fits ? count * extent : kMaxVariableBytes + 1;
    KVANT_RETURN_IF_ERROR(cursor->Expect("]"));
  }
  if (alignment != 0) variable.alignment = alignment;
  const bool is_power = (variable.alignment & (variable.alignment - 1)) == 0;
  if (!is_power || variable.alignment > kMaxAlignment || count > kMaxVariableBytes) {
    return Status::Corrupt(AtLine(line, "'" + variable.name + "' has an impossible size"));
  }
  variable.bytes = count * static_cast<uint64_t>(Bytes(*type));
  if (cursor->Accept("=")) KVANT_RETURN_IF_ERROR(ParseValues(cursor, *type, &variable));
  return variable;
}

Result<PtxModule> PtxModule::Parse(std::string_view text) {
  KVANT_ASSIGN_OR_RETURN(std::vector<Token> tokens, Lex(text));
  return Parser(std::move(tokens)).Run();
}

Result<const Kernel*> PtxModule::Find(std::string_view name) const {
  std::string known;
  for (const Kernel& kernel : kernels) {
    if (kernel.name == name) return &kernel;
    known += (known.empty() ? "" : ", ") + kernel.name;
  }
  return Status::NotFound("no kernel '" + std::string(name) + "', only: " + known);
}

}  // namespace kvant::ptx
