// The modifiers of PTX opcodes that this interpreter knows, and sets of names written as one
// string, looked up by the compiler: Names("rn ftz"). A name that is not listed does not compile in
// our tables, and is an error in a PTX text.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ptx/types.h"

namespace kvant::ptx {

inline constexpr auto kModifiers = std::to_array<std::string_view>({
    // rounding and arithmetic
    "rn",
    "rz",
    "rni",
    "rzi",
    "rmi",
    "rpi",
    "ftz",
    "sat",
    "satfinite",
    "approx",
    "full",
    "noftz",
    "NaN",
    "lo",
    "hi",
    "wide",
    "l",
    "r",
    "wrap",
    "clamp",
    "shiftamt",
    // comparison
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "ls",
    "hs",
    "equ",
    "neu",
    "ltu",
    "leu",
    "gtu",
    "geu",
    "num",
    "nan",
    "and",
    "or",
    "xor",
    "popc",
    // memory
    "global",
    "shared",
    "shared::cta",
    "param",
    "local",
    "const",
    "to",
    "nc",
    "ca",
    "cg",
    "cs",
    "lu",
    "wb",
    "volatile",
    "weak",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "sc",
    "cta",
    "gpu",
    "sys",
    "gl",
    "v2",
    "v4",
    "v8",
    "add",
    "min",
    "max",
    "inc",
    "dec",
    "exch",
    "cas",
    "async",
    "commit_group",
    "wait_group",
    "wait_all",
    "L1",
    "L2",
    "L1::no_allocate",
    "L1::evict_first",
    "L1::evict_last",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L2::evict_first",
    "L2::evict_last",
    "L2::evict_normal",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    // warps and blocks
    "sync",
    "aligned",
    "warp",
    "uni",
    "up",
    "down",
    "bfly",
    "idx",
    "all",
    "any",
    "ballot",
    "row",
    "col",
    "m8n8",
    "m16n8k8",
    "m16n8k16",
    "m16n8k32",
    "x1",
    "x2",
    "x4",
    "trans",
});

// Which of up to 128 names are present.
struct NameSet {
  uint64_t words[2] = {0, 0};

  constexpr void Add(size_t i) { words[i / 64] |= uint64_t{1} << (i % 64); }
  constexpr bool Has(size_t i) const { return words[i / 64] >> (i % 64) & 1; }
  constexpr int count() const { return std::popcount(words[0]) + std::popcount(words[1]); }
  constexpr bool empty() const { return (words[0] | words[1]) == 0; }
  constexpr bool operator==(const NameSet&) const = default;
};
constexpr NameSet operator&(NameSet a, NameSet b) {
  return {{a.words[0] & b.words[0], a.words[1] & b.words[1]}};
}
constexpr NameSet operator|(NameSet a, NameSet b) {
  return {{a.words[0] | b.words[0], a.words[1] | b.words[1]}};
}
constexpr NameSet operator-(NameSet a, NameSet b) {
  return {{a.words[0] & ~b.words[0], a.words[1] & ~b.words[1]}};
}
static_assert(kModifiers.size() <= 128);

constexpr std::optional<size_t> FindModifier(std::string_view name) {
  for (size_t i = 0; i < kModifiers.size(); ++i) {
    if (kModifiers[i] == name) return i;
  }
  return std::nullopt;
}

// Calls add(name) for each word of `text`.
template <typename Add>
constexpr void ForEachWord(std::string_view text, const Add& add) {
  while (!text.empty()) {
    const size_t end = text.find(' ') == text.npos ? text.size() : text.find(' ');
    if (end > 0) add(text.substr(0, end));
    text.remove_prefix(end == text.size() ? end : end + 1);
  }
}

// value() throws for a name that is not listed, which stops a compiler.
consteval NameSet Names(std::string_view text) {
  NameSet set;
  ForEachWord(text, [&](std::string_view name) { set.Add(FindModifier(name).value()); });
  return set;
}

consteval uint32_t Types(std::string_view text) {
  uint32_t set = 0;
  ForEachWord(
      text, [&](std::string_view name) { set |= 1u << static_cast<int>(FindType(name).value()); });
  return set;
}

}  // namespace kvant::ptx
