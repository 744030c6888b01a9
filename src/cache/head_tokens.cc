#include "cache/head_tokens.h"

#include <algorithm>

#include "cache/head_mass.h"
#include "codec/codec.h"

namespace kvant {

TokenReader::TokenReader(const MixedSource& source, bool reads_values)
    : source_(source), reads_values_(reads_values), decoded_(2 * source.layer.pools.size() + 2) {}

TokenReader::Row TokenReader::Read(const TokenPlace& place) {
  const size_t pools = source_.layer.pools.size();
  if (place.where == TokenPlace::kSink) {
    return ReadFrom(2 * pools + 1, source_.sink, source_.head.sink, place.slot);
  }
  if (place.where != TokenPlace::kStored) {
    return ReadFrom(2 * pools, source_.open, source_.head.open[place.slot / kPageTokens],
                    place.slot % kPageTokens);
  }
  const HeadPool& pool = source_.head.mixed->pools[place.pool];
  if (place.slot >= pool.coded_tokens) {
    return ReadFrom(2 * place.pool + 1, source_.open, pool.tail, place.slot - pool.coded_tokens);
  }
  return ReadFrom(2 * place.pool, source_.layer.pools[place.pool].layout,
                  pool.pages[static_cast<size_t>(place.slot / kPageTokens)],
                  place.slot % kPageTokens);
}

TokenReader::Row TokenReader::ReadFrom(size_t kind, const PageLayout& layout, const std::byte* page,
                                       int64_t token) {
  DecodedPage& at_hand = decoded_[kind];
  const int head_dim = layout.k.head_dim;
  if (at_hand.page != page) {
    at_hand.k.resize(static_cast<size_t>(layout.tokens) * static_cast<size_t>(head_dim));
    DecodeSide(layout.k, page, at_hand.k.data(), head_dim);
    if (reads_values_) {
      at_hand.v.resize(at_hand.k.size());
      DecodeSide(layout.v, page + layout.v_offset_bytes, at_hand.v.data(), head_dim);
    }
    at_hand.page = page;
  }
  return {at_hand.k.data() + token * head_dim,
          reads_values_ ? at_hand.v.data() + token * head_dim : nullptr};
}

HeadTokens::HeadTokens(const MixedSource& source, const Policy& policy)
    : head_dim_(source.open.k.head_dim) {
  int64_t before = std::min(source.sinks_tokens, source.length);
  for (const HeadPool& pool : source.head.mixed->pools) {
    pool_begin_.push_back(before);
    before += pool.tokens();
  }
  const HeldPlaces held(*source.head.mixed, source.sinks_tokens, source.closing_page,
                        source.length);
  closed_ = held.closed;
  open_begin_ = held.open_begin;
  const int64_t closing = source.closing_page * kPageTokens, window = closing + kPageTokens;
  for (int64_t t = 0; t < std::min(source.sinks_tokens, source.length); ++t) {
    Add(t, kWrittenWidth, {TokenPlace::kSink, 0, t});
  }
  AddStored(source);
  for (int64_t t = std::max(source.sinks_tokens, closing); t < window; ++t) {
    Add(t, source.layer.pools.front().width, {TokenPlace::kClosing, 0, t});
  }
  for (int64_t t = window; t < source.length; ++t)
    Add(t, kWrittenWidth, {TokenPlace::kWindow, 0, t});
  if (policy.needs_scores()) AddScores(source, policy.score_kind());
  if (policy.needs_keys() || policy.needs_values()) Decode(source, policy.needs_values());
}

void HeadTokens::Add(int64_t position, int width, const TokenPlace& place) {
  position_.push_back(static_cast<int32_t>(position));
  width_.push_back(static_cast<uint8_t>(width));
  place_.push_back(place);
}

void HeadTokens::AddStored(const MixedSource& source) {
  struct Stored {
    int32_t position;
    TokenPlace place;
  };
  std::vector<Stored> stored;
  for (size_t j = 0; j < source.layer.pools.size(); ++j) {
    const HeadPool& pool = source.head.mixed->pools[j];
    for (size_t slot = 0; slot < pool.positions.size(); ++slot) {
      stored.push_back(
          {pool.positions[slot], {TokenPlace::kStored, j, static_cast<int64_t>(slot)}});
    }
  }
  std::sort(stored.begin(), stored.end(),
            [](const Stored& a, const Stored& b) { return a.position < b.position; });
  for (const Stored& s : stored) {
    Add(s.position, source.layer.pools[s.place.pool].width, s.place);
  }
}

void HeadTokens::AddScores(const MixedSource& source, ScoreKind kind) {
  for (size_t i = 0; i < size(); ++i) {
    score_.push_back(ScoreOf(kind, source.group_ratio, source.head.mixed->mass.now,
                             static_cast<int64_t>(size()), held_place(i), position_[i],
                             source.length));
  }
}

size_t HeadTokens::At(int32_t position) const {
  return static_cast<size_t>(std::lower_bound(position_.begin(), position_.end(), position) -
                             position_.begin());
}

int64_t HeadTokens::held_place(size_t i) const {
  const TokenPlace& place = place_[i];
  if (place.where == TokenPlace::kSink) return place.slot;
  if (place.where == TokenPlace::kStored) return pool_begin_[place.pool] + place.slot;
  return closed_ + place.slot - open_begin_;
}

void HeadTokens::Decode(const MixedSource& source, bool with_values) {
  TokenReader reader(source, with_values);
  for (const TokenPlace& place : place_) {
    const TokenReader::Row row = reader.Read(place);
    k_.insert(k_.end(), row.k, row.k + head_dim_);
    if (with_values) v_.insert(v_.end(), row.v, row.v + head_dim_);
  }
}

PolicyTokens HeadTokens::view() const {
  PolicyTokens tokens;
  tokens.score = score_;
  tokens.position = position_;
  tokens.width = width_;
  tokens.k = k_;
  tokens.head_dim = head_dim_;
  tokens.v = v_.empty() ? nullptr : v_.data();
  return tokens;
}

}  // namespace kvant
