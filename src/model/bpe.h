// Bpe: merges the bytes of one word into tokens, best-ranked pair first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kvant/status.h"

namespace kvant {

// Thread rules: immutable; concurrent calls need a Scratch each.
class Bpe {
 public:
  // Working memory of Append, kept by the caller so that words do not allocate.
  class Scratch {
    friend class Bpe;
    struct Symbol {
      int32_t token;           // -1 once merged into its left neighbour
      int32_t previous, next;  // indices into symbols; -1 at the ends
    };
    struct Candidate {
      int32_t rank, left;               // merge this first if lower; index of the left symbol
      int32_t left_token, right_token;  // what stood there when the candidate was found
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // spelling_to_id: the vocabulary's spellings (used during the call only). merges: "left right",
  // best first; a repeated merge keeps its best rank. kCorrupt names a merge that is malformed or
  // whose parts or result are no tokens.
  static Result<Bpe> Create(const std::unordered_map<std::string_view, int32_t>& spelling_to_id,
                            std::span<const std::string_view> merges);

  // Appends the tokens of one word; O(n log n) in its bytes. Bytes without a token are left out
  // before merging, so their neighbours may merge.
  void Append(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const;

  int32_t byte_token(uint8_t byte) const { return byte_tokens_[byte]; }  // -1 where there is none

 private:
  struct Merge {
    int32_t rank, result;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  void Consider(int32_t left, Scratch& scratch) const;

  std::array<int32_t, 256> byte_tokens_{};
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace kvant
