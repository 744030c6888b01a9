#include "cache/page_turner.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "cache/cache_impl.h"
#include "cache/token_writer.h"
#include "codec/codec.h"
#include "codec/rotation.h"
#include "codec/token_copy.h"

namespace kvant {

KeyTurn::KeyTurn(const Rope& rope, int64_t positions) : halves_(rope.pairs == RopePairs::kHalves) {
  for (const double frequency : rope.frequencies) {
    const double angle = static_cast<double>(positions) * frequency;
    cos_sin_.push_back(static_cast<float>(std::cos(angle)));
    cos_sin_.push_back(static_cast<float>(std::sin(angle)));
  }
}

void KeyTurn::Turn(float* k) const {
  const auto count = static_cast<int>(cos_sin_.size() / 2);
  const int step = halves_ ? 1 : 2, to_partner = halves_ ? count : 1;
  const float* at = cos_sin_.data();
  for (int i = 0; i < count; ++i, k += step, at += 2) {
    const float a = k[0], b = k[to_partner];
    k[0] = a * at[0] + b * at[1];
    k[to_partner] = b * at[0] - a * at[1];
  }
}

Result<PageTurner> PageTurner::Create(int page_tokens, int head_dim, int64_t coded_bytes,
                                      std::span<const Rope> ropes, int64_t positions) {
  const size_t values = static_cast<size_t>(page_tokens) * static_cast<size_t>(head_dim);
  PageTurner turner(head_dim);
  for (const Rope& rope : ropes) turner.turns_.emplace_back(rope, positions);
  KVANT_ASSIGN_OR_RETURN(turner.rows_, AlignedBuffer::Create(values * sizeof(float)));
  KVANT_ASSIGN_OR_RETURN(turner.open_, AlignedBuffer::Create(values * sizeof(float)));
  if (coded_bytes > 0) {
    KVANT_ASSIGN_OR_RETURN(turner.coded_, AlignedBuffer::Create(static_cast<size_t>(coded_bytes)));
  }
  return turner;
}

void PageTurner::Decode(const SideLayout& k, const std::byte* page) {
  DecodeSide(k, page, row(0), head_dim_);
}

void PageTurner::Turn(const KeysOfHead& head, int first, int count) {
  for (int t = first; t < first + count; ++t) Turn(head, row(t));
}

void PageTurner::Turn(const KeysOfHead& head, float* k) const {
  const Rotation to_key = head.store->to_key.Of(head.kv_head, head_dim_);
  const Rotation to_query = head.store->to_query.Of(head.kv_head, head_dim_);
  RotateBack(to_query, head_dim_, k);  // its factors are the inverse of to_key's
  turns_[static_cast<size_t>(head.layer)].Turn(k);
  Rotate(to_key, head_dim_, k);
}

Status PageTurner::Check(const KeysOfHead& head, int first, int count, int64_t position) {
  const FloatType type = head.store->open.k.format.float_type;
  const auto bad = FindUnstorable(type, row(first), head_dim_, count, head_dim_);
  if (!bad) return Status::Ok();
  return Status::InvalidArgument(
      "K of layer " + std::to_string(head.layer) + ", KV head " + std::to_string(head.kv_head) +
      ", channel " + std::to_string(bad->channel) + " would be " + std::to_string(bad->value) +
      " at its new position " + std::to_string(position + bad->token) +
      ", which its page cannot hold");
}

void PageTurner::Write(const LayerStore& layer, int tokens, std::byte* page) {
  WriteTokens(layer.open.k, page, 0, tokens, row(0), head_dim_);
}

void PageTurner::Encode(const LayerStore& layer, int tokens, int first_token, std::byte* page) {
  Write(layer, tokens, open_.data());
  EncodeSide(layer.open.k, open_.data(), layer.stored.k, first_token, page);
}

void PageTurner::EncodeTokens(const LayerStore& layer, const SideLayout& k,
                              std::span<const int> tokens, std::byte* page) {
  // All of a page is coded, also what no token has.
  std::fill_n(open_.data(), layer.open.k.bytes, std::byte{0});
  for (const int t : tokens) {
    WriteTokens(layer.open.k, open_.data(), t, 1, row(t), head_dim_);
  }
  EncodeSide(layer.open.k, open_.data(), k, 0, coded_.data());
  for (const int t : tokens) CopyToken(k, coded_.data(), t, page, t);
}

}  // namespace kvant
