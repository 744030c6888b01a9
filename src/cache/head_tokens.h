// HeadTokens: all tokens of one (layer, KV head) at the moment when a page leaves the window,
// oldest first, as a policy takes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/mixed_head.h"
#include "cache/mixed_layer.h"
#include "cache/sequence.h"
#include "format/page_layout.h"
#include "kvant/policy.h"

namespace kvant {

// Where a token is before the policy has spoken.
struct TokenPlace {
  enum Where { kSink, kStored, kClosing, kWindow };
  Where where = kSink;
  size_t pool = 0;   // kStored
  int64_t slot = 0;  // kStored: of its pool; else of the sink page or the open pages, by position

  bool is_fixed() const { return where == kSink || where == kWindow; }
};

// What stands around a head: its pages and their layouts.
struct MixedSource {
  const MixedLayer& layer;
  const PageLayout& open;
  const PageLayout& sink;
  const HeadPages& head;
  int64_t sinks_tokens = 0;
  int64_t closing_page = 0;  // all before it came already
  int64_t length = 0;        // tokens to judge
  int group_ratio = 1;
};

// Decodes tokens by their place, a page at a time: the last page of each kind stays at hand.
class TokenReader {
 public:
  // reads_values: false leaves V out.
  explicit TokenReader(const MixedSource& source, bool reads_values = true);

  struct Row {
    const float *k, *v;  // [head_dim], valid until the next Read; v null where V is left out
  };
  Row Read(const TokenPlace& place);

 private:
  struct DecodedPage {
    const std::byte* page = nullptr;
    std::vector<float> k, v;
  };
  Row ReadFrom(size_t kind, const PageLayout& layout, const std::byte* page, int64_t token);

  const MixedSource source_;
  const bool reads_values_;
  std::vector<DecodedPage> decoded_;  // coded pages and tails of each pool, open pages, sinks
};

class HeadTokens {
 public:
  // Throws std::bad_alloc.
  // REQUIRES: the head's mass has all tokens of that length, where the policy needs scores.
  HeadTokens(const MixedSource& source, const Policy& policy);

  size_t size() const { return position_.size(); }
  const TokenPlace& place(size_t i) const { return place_[i]; }
  int32_t position(size_t i) const { return position_[i]; }
  int width(size_t i) const { return width_[i]; }
  // The token at a position, which must be there.
  size_t At(int32_t position) const;
  // Of all tokens that the head holds, as HeadMass counts them.
  int64_t held_place(size_t i) const;
  PolicyTokens view() const;

 private:
  void Add(int64_t position, int width, const TokenPlace& place);
  void AddStored(const MixedSource& source);
  void AddScores(const MixedSource& source, ScoreKind kind);
  void Decode(const MixedSource& source, bool with_values);

  std::vector<int32_t> position_;
  std::vector<uint8_t> width_;
  std::vector<TokenPlace> place_;
  std::vector<int64_t> pool_begin_;  // held places before each pool's
  int64_t closed_ = 0, open_begin_ = 0;
  std::vector<float> score_;  // empty unless the policy asks for it
  std::vector<float> k_, v_;  // empty unless the policy asks for them
  int head_dim_ = 0;
};

}  // namespace kvant
