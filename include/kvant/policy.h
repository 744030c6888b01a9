// Policy: how many bits each token of a cache keeps, and which tokens go. A small function on what
// is known of the tokens of one (sequence, layer, KV head); it sees no cache and no model.
//
// A width is a number of bits: 16 as written, 8, 4, 3, 2, or 0 for a token that is dropped. Every
// policy holds to this:
//   sinks and window   tokens in them keep the width they have
//   never up           no token gets a larger width than it has
//   monotone           of two tokens, the more important one never ends narrower where it was not
//                      narrower before
//   ties               of two tokens of equal importance and width, the lower position counts as
//                      the more important one
//   budget             widths as chosen take at most budget_bytes, with metadata; where that is not
//                      possible, nothing but sinks and window is left. A budget comes before a
//                      method's own rule: what "never drops" drops when nothing else fits.
//   stable             choosing again on what was chosen changes nothing
// The paragraphs on each one, with sources: docs/policies.md.
//
// Thread rules: a Policy has no state; any number of threads may ask it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

inline constexpr int kDroppedWidth = 0, kWrittenWidth = 16;

// The tokens of one KV head, oldest first. Tokens that were dropped before may be left out or stand
// there with width 0. All spans are [tokens], but for k and v; what they hold is finite, which
// CheckPolicyInput checks of scores only.
struct PolicyTokens {
  std::span<const float> score;       // attention mass (ScoreKind), 0 or more; or empty
  std::span<const int32_t> position;  // strictly ascending, below PolicyLimits::length
  std::span<const uint8_t> width;     // now
  std::span<const float> k;           // [tokens][head_dim], or empty
  int head_dim = 0;
  const float* v = nullptr;  // [tokens][head_dim], or null
};

struct PolicyLimits {
  int sinks = 0;             // tokens at the first positions
  int window_tokens = 0;     // at the last ones
  int64_t length = 0;        // of the sequence: tokens that ever were, the newest at length - 1
  int64_t budget_bytes = 0;  // of all tokens given, sinks and window among them; 0: none
  // Bytes of one token by its width, metadata included. 0 at widths that the caller has no room
  // for; entry 0 is what a dropped token still costs.
  std::array<int64_t, kWrittenWidth + 1> token_bytes{};
};

// What the scores of a policy are made of: the probabilities that queries gave a token, over the
// query heads that share its KV head. "Recent": by the last 64 queries, of those that could see it.
enum class ScoreKind {
  kNone,
  kTotal,       // sum over all queries so far and over heads
  kRecentMean,  // mean over recent queries and over heads
  kRecentTop,   // mean over recent queries, of the heads the largest
  kRecentMax,   // largest over recent queries and over heads
};

class Policy {
 public:
  virtual ~Policy();

  // The spec with nothing left out: ParsePolicy reads it back to an equal policy.
  virtual std::string name() const = 0;

  virtual ScoreKind score_kind() const { return ScoreKind::kNone; }
  bool needs_scores() const { return score_kind() != ScoreKind::kNone; }
  virtual bool needs_keys() const { return false; }
  virtual bool needs_values() const { return false; }

  // Widths that Choose may give to a token besides the one it has and 0; ascending.
  virtual std::vector<int> widths() const { return {}; }

  // importance [tokens]: what tokens are ranked by, more is kept longer. Comparable within one
  // call only. REQUIRES: CheckPolicyInput(), as for Choose.
  virtual void Importance(const PolicyTokens& tokens, const PolicyLimits& limits,
                          std::span<double> importance) const = 0;

  // width [tokens], apart from tokens.width: what each token should have now.
  virtual void Choose(const PolicyTokens& tokens, const PolicyLimits& limits,
                      std::span<uint8_t> width) const = 0;
};

// kInvalidArgument names what is missing or wrong: spans of other lengths, positions that do not
// ascend or lie outside the sequence, widths above 16, scores that are negative or not finite, an
// input that the policy needs, or bytes that are not given or shrink as a width grows.
Status CheckPolicyInput(const Policy& policy, const PolicyTokens& tokens,
                        const PolicyLimits& limits);

// KEEP, HEAVY, RECENT and RATIO below 1 are shares of the tokens between sinks and window (those
// dropped before counted too), rounded down; from 1 on they are tokens. Left out, KEEP is all of
// them: then the budget alone decides.
//   full[:WIDTH,...]                  keeps everything until the budget says otherwise
//   streaming[:FIRST,RECENT]          4,512                         (StreamingLLM)
//   h2o[:HEAVY,RECENT[,mean]]         0.1,0.1; accumulated scores, or divided by possible queries
//   snapkv[:KEEP[,POOL]]              scores averaged over POOL = 5 neighbours
//   keydiff[:KEEP]                    keys unlike the mean key      (needs keys)
//   lagkv[:KEEP[,LAG]]                lag 128                       (needs keys and values)
//   diffkv[:PRUNE,LOW[,WIDTH,WIDTH]]  0.02,1,8,4: thresholds in units of the average attention
//   mikv[:RATIO,WIDTH,WIDTH]          0.2,8,2: the most important ones, all others
//   qaq:ERROR[,WIDTH,...]             2,4,8: the narrowest that is enough (needs values)
//   variance[:WIDTH,...]              2,4,8: least predicted KL within the budget (needs keys)
// Scores are needed by h2o, snapkv, diffkv, mikv, qaq and variance. WIDTHs are 2, 3, 4, 8 or 16.
// kInvalidArgument names the part that is wrong and lists what is possible. "duo" is chosen per
// head: kvant/head_classes.h.
Result<std::unique_ptr<Policy>> ParsePolicy(std::string_view spec);

}  // namespace kvant
