#include "ptx/opcodes.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "ptx/lane_functions.h"
#include "ptx/lexer.h"
#include "ptx/warp_functions.h"

namespace kvant::ptx {
namespace {

constexpr NameSet N = {};  // no modifier
constexpr uint32_t kInts = Types("u16 u32 u64 s16 s32 s64");
constexpr uint32_t kBits = Types("b16 b32 b64");
constexpr uint32_t kReals = Types("f32 f64");
constexpr uint32_t kHalves = Types("f16 f16x2");
constexpr uint32_t kAllHalves = Types("f16 f16x2 bf16 bf16x2");
constexpr uint32_t kScalars =
    Types("b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64");
constexpr uint32_t kSetTypes = kInts | kBits | kReals | Types("f16");
constexpr NameSet kCompare = Names("eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan");
// Where data are cached changes when they arrive, never what they are.
constexpr NameSet kCached = Names(
    "ca cg cs lu wb volatile weak L1::no_allocate L1::evict_first L1::evict_last L1::evict_normal "
    "L1::evict_unchanged L2::evict_first L2::evict_last L2::evict_normal L2::64B L2::128B "
    "L2::256B");
// Warps take turns here, so memory is always consistent, for whatever scope.
constexpr NameSet kOrdered = Names("relaxed acquire release acq_rel sc cta gpu sys");
constexpr NameSet kSpaces = Names("global shared shared::cta param local const");
constexpr NameSet kAtomic = Names("add min max and or xor inc dec exch cas");
constexpr NameSet kRound = Names("rni rzi rmi rpi");

constexpr Opcode kOpcodes[] = {
    // name, required, one of, optional, types, how many, operands, function
    {"add", N, N, N, kInts, 1, "dss", Add},
    {"add", N, N, Names("rn ftz sat"), Types("f32"), 1, "dss", Add},
    {"add", N, N, Names("rn"), kAllHalves | Types("f64"), 1, "dss", Add},
    {"sub", N, N, N, kInts, 1, "dss", Sub},
    {"sub", N, N, Names("rn ftz sat"), Types("f32"), 1, "dss", Sub},
    {"sub", N, N, Names("rn"), kAllHalves | Types("f64"), 1, "dss", Sub},
    {"mul", Names("lo"), N, N, kInts, 1, "dss", MulLo},
    {"mul", Names("hi"), N, N, kInts, 1, "dss", MulHi},
    {"mul", Names("wide"), N, N, Types("u16 u32 s16 s32"), 1, "dss", MulWide},
    {"mul", N, N, Names("rn ftz sat"), Types("f32"), 1, "dss", FloatMul},
    {"mul", N, N, Names("rn"), kAllHalves | Types("f64"), 1, "dss", FloatMul},
    {"mad", Names("lo"), N, N, kInts, 1, "dsss", MadLo},
    {"mad", Names("hi"), N, N, kInts, 1, "dsss", MadHi},
    {"mad", Names("wide"), N, N, Types("u16 u32 s16 s32"), 1, "dsss", MadWide},
    {"fma", Names("rn"), N, Names("ftz sat"), Types("f32"), 1, "dsss", Fma},
    {"fma", Names("rn"), N, N, kHalves | Types("f64"), 1, "dsss", Fma},
    {"div", N, N, N, kInts, 1, "dss", IntDiv},
    {"div", N, Names("rn approx full"), Names("ftz"), kReals, 1, "dss", FloatDiv},
    {"rem", N, N, N, kInts, 1, "dss", IntRem},
    {"sad", N, N, N, kInts, 1, "dsss", Sad},
    {"dp4a", N, N, N, Types("u32 s32"), 2, "dsss", Dp4a},
    {"min", N, N, N, kInts, 1, "dss", Min},
    {"min", N, N, Names("ftz NaN"), kReals, 1, "dss", Min},
    {"min", N, N, Names("NaN"), kAllHalves, 1, "dss", Min},
    {"max", N, N, N, kInts, 1, "dss", Max},
    {"max", N, N, Names("ftz NaN"), kReals, 1, "dss", Max},
    {"max", N, N, Names("NaN"), kAllHalves, 1, "dss", Max},
    {"neg", N, N, Names("ftz"), Types("s16 s32 s64 f32 f64"), 1, "ds", Neg},
    {"neg", N, N, N, kAllHalves, 1, "ds", Neg},
    {"abs", N, N, Names("ftz"), Types("s16 s32 s64 f32 f64"), 1, "ds", Abs},
    {"abs", N, N, N, kAllHalves, 1, "ds", Abs},
    {"rcp", N, Names("rn approx"), Names("ftz"), Types("f32"), 1, "ds", Reciprocal},
    {"sqrt", N, Names("rn approx"), Names("ftz"), Types("f32"), 1, "ds", SquareRoot},
    {"rsqrt", Names("approx"), N, Names("ftz"), Types("f32"), 1, "ds", ReciprocalRoot},
    {"ex2", Names("approx"), N, Names("ftz"), Types("f32"), 1, "ds", Exp2},
    {"ex2", Names("approx"), N, N, kHalves, 1, "ds", Exp2},
    {"lg2", Names("approx"), N, Names("ftz"), Types("f32"), 1, "ds", Log2},
    {"tanh", Names("approx"), N, N, Types("f32"), 1, "ds", Tanh},

    {"and", N, N, N, kBits | Types("pred"), 1, "dss", BitAnd},
    {"or", N, N, N, kBits | Types("pred"), 1, "dss", BitOr},
    {"xor", N, N, N, kBits | Types("pred"), 1, "dss", BitXor},
    {"not", N, N, N, kBits | Types("pred"), 1, "ds", BitNot},
    {"shl", N, N, N, kBits, 1, "dss", ShiftLeft},
    {"shr", N, N, N, kBits | kInts, 1, "dss", ShiftRight},
    {"shf", Names("l"), Names("wrap clamp"), N, Types("b32"), 1, "dsss", FunnelShift},
    {"shf", Names("r"), Names("wrap clamp"), N, Types("b32"), 1, "dsss", FunnelShift},
    {"lop3", N, N, N, Types("b32"), 1, "dssss", Lop3},
    {"prmt", N, N, N, Types("b32"), 1, "dsss", Prmt},
    {"bfe", N, N, N, Types("u32 u64 s32 s64"), 1, "dsss", BitFieldExtract},
    {"bfi", N, N, N, Types("b32 b64"), 1, "dssss", BitFieldInsert},
    {"bfind", N, N, Names("shiftamt"), Types("u32 u64 s32 s64"), 1, "ds", FindLeadingBit},
    {"clz", N, N, N, Types("b32 b64"), 1, "ds", CountLeadingZeros},
    {"popc", N, N, N, Types("b32 b64"), 1, "ds", CountOnes},
    {"brev", N, N, N, Types("b32 b64"), 1, "ds", ReverseBits},
    {"selp", N, N, N, kScalars, 1, "dsss", Select},
    {"setp", N, kCompare, Names("ftz"), kSetTypes, 1, "pss", SetPredicate},
    {"setp", Names("and"), kCompare, Names("ftz"), kSetTypes, 1, "psss", SetPredicate},
    {"setp", Names("or"), kCompare, Names("ftz"), kSetTypes, 1, "psss", SetPredicate},
    {"setp", Names("xor"), kCompare, Names("ftz"), kSetTypes, 1, "psss", SetPredicate},
    {"set", N, kCompare, Names("ftz"), kInts | kBits | kReals, 2, "dss", SetMask},

    {"cvt", N, N, Names("sat"), kInts | Types("u8 s8"), 2, "ds", Convert},
    {"cvt", N, N, kRound | Names("rn ftz sat"), kInts | kReals | Types("u8 s8 f16 bf16"), 2, "ds",
     Convert},
    {"cvt", Names("rn"), N, N, Types("f16x2 bf16x2 f32"), 2, "dss", ConvertPair},
    {"cvt", Names("rn satfinite"), N, N, Types("e4m3x2 e5m2x2 f32"), 2, "dss", ConvertPair},
    {"cvt", Names("rn"), N, Names("satfinite"), Types("e4m3x2 e5m2x2 f16x2"), 2, "ds", ConvertPair},

    {"mov", N, N, N, kScalars | Types("pred"), 1, "DS", nullptr, Move},
    {"cvta", N, kSpaces, Names("to"), Types("u64"), 1, "dS", nullptr, ConvertAddress},
    {"bra", N, N, Names("uni"), 0, 0, "l", nullptr, Branch},
    {"ret", N, N, Names("uni"), 0, 0, "", nullptr, Exit},
    {"exit", N, N, N, 0, 0, "", nullptr, Exit},
    {"trap", N, N, N, 0, 0, "", nullptr, Trap},
    // Order and prefetching: nothing to do where warps take turns.
    {"membar", N, Names("cta gl sys"), N, 0, 0, "", nullptr, Nothing},
    {"fence", N, Names("cta gpu sys"), Names("sc acq_rel"), 0, 0, "", nullptr, Nothing},
    {"prefetch", N, Names("L1 L2"), Names("global"), 0, 0, "a", nullptr, Nothing},

    {"ld", N, N, kSpaces | kCached | kOrdered | Names("nc v2 v4 v8"), kScalars, 1, "Da", nullptr,
     Load},
    {"st", N, N, kSpaces | kCached | kOrdered | Names("v2 v4 v8"), kScalars, 1, "aS", nullptr,
     Store},
    {"atom", Names("cas"), N, kSpaces | kOrdered, Types("b32 b64"), 1, "dass", nullptr, Atomic},
    {"atom", N, kAtomic, kSpaces | kOrdered | Names("noftz"),
     Types("b32 b64 u32 u64 s32 s64 f32 f16 f16x2"), 1, "das", nullptr, Atomic},
    {"red", N, kAtomic - Names("exch cas"), kSpaces | kOrdered | Names("noftz"),
     Types("b32 b64 u32 u64 s32 s64 f32 f16 f16x2"), 1, "as", nullptr, Atomic},

    {"cp", Names("async global"), Names("ca cg"), kCached | Names("shared shared::cta"), 0, 0,
     "aass?", nullptr, CopyAsync},
    {"cp", Names("async commit_group"), N, N, 0, 0, "", nullptr, CommitCopies},
    {"cp", Names("async wait_group"), N, N, 0, 0, "s", nullptr, WaitForCopies},
    {"cp", Names("async wait_all"), N, N, 0, 0, "", nullptr, WaitForCopies},

    {"bar", Names("warp sync"), N, N, 0, 0, "s", nullptr, Nothing, Meeting::kMaskedLanes},
    {"bar", Names("sync"), N, N, 0, 0, "ss?", nullptr, Nothing, Meeting::kBlock},
    {"barrier", Names("sync"), N, Names("aligned cta"), 0, 0, "ss?", nullptr, Nothing,
     Meeting::kBlock},
    {"shfl", Names("sync"), Names("up down bfly idx"), N, Types("b32"), 1, "pssss", nullptr,
     Shuffle, Meeting::kMaskedLanes},
    {"vote", Names("sync"), Names("all any uni"), N, Types("pred"), 1, "dss", nullptr, Vote,
     Meeting::kMaskedLanes},
    {"vote", Names("sync ballot"), N, N, Types("b32"), 1, "dss", nullptr, Vote,
     Meeting::kMaskedLanes},
    {"match", Names("sync"), Names("any all"), N, Types("b32 b64"), 1, "pss", nullptr, Match,
     Meeting::kMaskedLanes},
    {"redux", Names("sync"), Names("add min max and or xor"), N, Types("b32 u32 s32"), 1, "dss",
     nullptr, Reduce, Meeting::kMaskedLanes},
    {"activemask", N, N, N, Types("b32"), 1, "d", nullptr, ActiveMask},

    {"mma", Names("sync aligned row col"), Names("m16n8k8 m16n8k16"), N, Types("f32 f16 bf16"), 4,
     "DSSS", nullptr, MultiplyMatrices, Meeting::kWholeWarp},
    {"mma", Names("sync aligned row col"), Names("m16n8k16 m16n8k32"), Names("satfinite"),
     Types("s32 s8 u8"), 4, "DSSS", nullptr, MultiplyMatrices, Meeting::kWholeWarp},
    {"ldmatrix", Names("sync aligned m8n8"), Names("x1 x2 x4"), Names("trans shared shared::cta"),
     Types("b16"), 1, "Da", nullptr, LoadMatrices, Meeting::kWholeWarp},
    {"movmatrix", Names("sync aligned m8n8 trans"), N, N, Types("b16"), 1, "ds", nullptr,
     TransposeMatrix, Meeting::kWholeWarp},
};

// The parts of "ld.global.v4.u32" behind the first.
struct Suffix {
  NameSet modifiers;
  std::vector<Type> types;
  std::string unknown;
};

Suffix SplitSuffix(std::string_view name) {
  Suffix suffix;
  size_t at = name.find('.');
  while (at != name.npos) {
    const size_t next = name.find('.', at + 1);
    const std::string_view part = name.substr(at + 1, next - at - 1);
    if (const auto type = FindType(part)) {
      suffix.types.push_back(*type);
    } else if (const auto modifier = FindModifier(part)) {
      suffix.modifiers.Add(*modifier);
    } else {
      suffix.unknown = std::string(part);
    }
    at = next;
  }
  return suffix;
}

bool Matches(const Opcode& row, const Suffix& suffix) {
  if (static_cast<int>(suffix.types.size()) != row.type_count) return false;
  for (const Type type : suffix.types) {
    if ((row.types >> static_cast<int>(type) & 1) == 0) return false;
  }
  const NameSet rest = suffix.modifiers - row.required;
  if (!(row.required - suffix.modifiers).empty()) return false;
  if (!(rest - row.one_of - row.optional).empty()) return false;
  const NameSet chosen = rest & row.one_of;
  return row.one_of.empty() || chosen.count() == 1;
}

bool Allows(char letter, const Operand& operand) {
  using Kind = Operand::Kind;
  const bool is_value = operand.kind == Kind::kRegister || operand.kind == Kind::kImmediate ||
                        operand.kind == Kind::kSpecial;
  const bool is_target = operand.kind == Kind::kRegister || operand.kind == Kind::kSink;
  switch (letter) {
    case 'd':
      return is_target;
    case 'D':
    case 'p':
      if (operand.kind != (letter == 'p' ? Kind::kPair : Kind::kVector)) return is_target;
      break;
    case 's':
      return is_value;
    case 'S':
      if (operand.kind != Kind::kVector) return is_value || operand.kind == Kind::kSymbol;
      break;
    case 'a':
      return operand.kind == Kind::kAddress;
    default:
      return operand.kind == Kind::kLabel;
  }
  for (const Operand& element : operand.elements) {
    if (!Allows(letter == 'S' ? 's' : 'd', element)) return false;
  }
  return true;
}

bool OperandsMatch(std::string_view letters, const std::vector<Operand>& operands) {
  size_t count = 0;
  for (size_t i = 0; i < letters.size(); ++i) {
    const bool is_optional = i + 1 < letters.size() && letters[i + 1] == '?';
    if (count < operands.size()) {
      if (!Allows(letters[i], operands[count])) return false;
      ++count;
    } else if (!is_optional) {
      return false;
    }
    if (is_optional) ++i;
  }
  return count == operands.size();
}

std::string_view BaseName(std::string_view name) { return name.substr(0, name.find('.')); }

}  // namespace

bool IsKnownOpcode(std::string_view name) {
  return std::any_of(std::begin(kOpcodes), std::end(kOpcodes),
                     [&](const Opcode& row) { return row.name == BaseName(name); });
}

Status Decode(Instruction* instruction) {
  const std::string_view name = instruction->name;
  const Suffix suffix = SplitSuffix(name);
  bool is_form = false;
  for (const Opcode& row : kOpcodes) {
    if (row.name != BaseName(name)) continue;
    if (!suffix.unknown.empty() || !Matches(row, suffix)) continue;
    is_form = true;
    if (!OperandsMatch(row.operands, instruction->operands)) continue;
    instruction->opcode = &row;
    instruction->modifiers = suffix.modifiers;
    instruction->types = suffix.types;
    return Status::Ok();
  }
  std::string why = "'" + std::string(name) + "' ";
  if (is_form) {
    why += "has operands that it cannot take";
  } else if (!suffix.unknown.empty()) {
    why += "has the modifier '" + suffix.unknown + "', not supported";
  } else {
    why += "is not supported with these modifiers and types";
  }
  return Status::Unsupported(AtLine(instruction->line, why));
}

}  // namespace kvant::ptx
