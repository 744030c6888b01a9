#include "kvant/policy.h"

#include <algorithm>
#include <cmath>

namespace kvant {
namespace {

Status Bad(const std::string& what) { return Status::InvalidArgument("policy input: " + what); }

Status CheckSize(const std::string& what, size_t size, size_t wanted, bool may_be_empty) {
  if (size == wanted || (may_be_empty && size == 0)) return Status::Ok();
  return Bad(std::to_string(size) + " " + what + " where there should be " +
             std::to_string(wanted));
}

Status CheckSizes(const Policy& policy, const PolicyTokens& t) {
  const size_t tokens = t.position.size();
  KVANT_RETURN_IF_ERROR(CheckSize("widths", t.width.size(), tokens, false));
  KVANT_RETURN_IF_ERROR(CheckSize("scores", t.score.size(), tokens, !policy.needs_scores()));
  const bool rows = policy.needs_keys() || policy.needs_values() || !t.k.empty();
  if (rows && t.head_dim < 1) return Bad("head_dim " + std::to_string(t.head_dim));
  KVANT_RETURN_IF_ERROR(CheckSize("values of keys", t.k.size(),
                                  tokens * static_cast<size_t>(std::max(0, t.head_dim)),
                                  !policy.needs_keys()));
  if (policy.needs_values() && t.v == nullptr) return Bad("policy " + policy.name() + " needs V");
  return Status::Ok();
}

Status CheckLimits(const Policy& policy, const PolicyLimits& l) {
  if (l.sinks < 0 || l.window_tokens < 0 || l.budget_bytes < 0) {
    return Bad("sinks, window and budget must not be negative");
  }
  int64_t narrower = l.token_bytes[kDroppedWidth];
  if (narrower < 0) return Bad("a token of 0 bits takes " + std::to_string(narrower) + " bytes");
  for (size_t w = 1; w < l.token_bytes.size(); ++w) {
    const int64_t bytes = l.token_bytes[w];
    if (bytes == 0) continue;
    if (bytes < narrower) {
      return Bad("a token of " + std::to_string(w) + " bits takes " + std::to_string(bytes) +
                 " bytes, less than a narrower one");
    }
    narrower = bytes;
  }
  for (const int w : policy.widths()) {
    if (l.token_bytes[static_cast<size_t>(w)] > 0) continue;
    return Bad("policy " + policy.name() + " needs tokens of " + std::to_string(w) +
               " bits, and their bytes are not given");
  }
  return Status::Ok();
}

Status CheckToken(const PolicyTokens& t, const PolicyLimits& l, size_t i) {
  const int64_t position = t.position[i];
  const auto bad = [&](const std::string& what) {
    return Bad("token at position " + std::to_string(position) + ' ' + what);
  };
  if (position < 0 || position >= l.length) {
    return bad("lies outside a sequence of " + std::to_string(l.length));
  }
  if (i > 0 && position <= t.position[i - 1]) return bad("does not come after the one before it");
  const uint8_t width = t.width[i];
  if (width > kWrittenWidth) return bad("has " + std::to_string(width) + " bits");
  if (width != kDroppedWidth && l.token_bytes[width] == 0) {
    return bad("has " + std::to_string(width) + " bits, and their bytes are not given");
  }
  if (!t.score.empty() && !(t.score[i] >= 0 && std::isfinite(t.score[i]))) {
    return bad("has a score of " + std::to_string(t.score[i]));
  }
  return Status::Ok();
}

}  // namespace

Policy::~Policy() = default;

Status CheckPolicyInput(const Policy& policy, const PolicyTokens& tokens,
                        const PolicyLimits& limits) {
  KVANT_RETURN_IF_ERROR(CheckSizes(policy, tokens));
  KVANT_RETURN_IF_ERROR(CheckLimits(policy, limits));
  for (size_t i = 0; i < tokens.position.size(); ++i) {
    KVANT_RETURN_IF_ERROR(CheckToken(tokens, limits, i));
  }
  return Status::Ok();
}

}  // namespace kvant
