// PageTurner: room for the keys of one page, and what a shift does to them there.
// Thread rules: for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "cache/key_rope.h"
#include "kvant/status.h"

namespace kvant {

struct LayerStore;
struct SideLayout;

// Whose keys they are.
struct KeysOfHead {
  const LayerStore* store;
  int layer, kv_head;
};

// Turns keys back by a number of positions.
class KeyTurn {
 public:
  KeyTurn(const Rope& rope, int64_t positions);
  void Turn(float* k) const;

 private:
  bool halves_;
  std::vector<float> cos_sin_;  // [pairs][2]
};

class PageTurner {
 public:
  //   ropes        [layers]
  //   coded_bytes  of the largest coded K side that EncodeTokens will write
  static Result<PageTurner> Create(int page_tokens, int head_dim, int64_t coded_bytes,
                                   std::span<const Rope> ropes, int64_t positions);

  // K of a page, into rows.
  void Decode(const SideLayout& k, const std::byte* page);
  // Turns `count` rows from `first` on.
  void Turn(const KeysOfHead& head, int first, int count);
  // One key that lies elsewhere.
  void Turn(const KeysOfHead& head, float* k) const;
  // kInvalidArgument where the layer's open pages cannot hold one of the rows. position: of the
  // first of them, after the shift.
  Status Check(const KeysOfHead& head, int first, int count, int64_t position);

  // The first rows become the K side of a page as written, or of a stored one; first_token: as
  // EncodeSide has it.
  void Write(const LayerStore& layer, int tokens, std::byte* page);
  void Encode(const LayerStore& layer, int tokens, int first_token, std::byte* page);
  // The rows named become K of their tokens in a page of a format by token, of which nothing else
  // changes.
  void EncodeTokens(const LayerStore& layer, const SideLayout& k, std::span<const int> tokens,
                    std::byte* page);

 private:
  explicit PageTurner(int head_dim) : head_dim_(head_dim) {}
  float* row(int t) { return rows_.as<float>() + int64_t{t} * head_dim_; }

  int head_dim_;
  std::vector<KeyTurn> turns_;  // [layers]
  AlignedBuffer rows_;          // [page_tokens][head_dim]
  AlignedBuffer open_;          // K of one page, as written
  AlignedBuffer coded_;         // the same, coded
};

}  // namespace kvant
