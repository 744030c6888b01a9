#include "kvant/attention_mass.h"

#include <algorithm>
#include <new>
#include <string>

namespace kvant {

Result<AttentionMass> AttentionMass::Create(const KvGeometry& geometry,
                                            int64_t context_tokens) try {
  AttentionMass mass;
  mass.geometry_ = geometry;
  mass.context_tokens_ = context_tokens;
  mass.sums_.resize(static_cast<size_t>(int64_t{geometry.layers} * geometry.q_heads) *
                    static_cast<size_t>(context_tokens));
  return mass;
} catch (const std::bad_alloc&) {
  return Status::OutOfMemory("cannot allocate the attention mass of " +
                             std::to_string(context_tokens) + " tokens");
}

void AttentionMass::Add(const LayerAttention& a) {
  const int64_t first_head = int64_t{a.layer} * geometry_.q_heads;
  for (int head = 0; head < a.q_heads; ++head) {
    float* const sums = sums_.data() + (first_head + head) * context_tokens_;
    for (int query = 0; query < a.queries; ++query) {
      const std::span<const float> row = a.Row(query, head);
      const int64_t seen = a.first_position + query + 1;  // what follows is 0
      for (int64_t t = 0; t < seen; ++t) sums[t] += row[static_cast<size_t>(t)];
    }
  }
  length_ = std::max(length_, a.tokens);
}

void AttentionMass::Clear() {
  std::fill(sums_.begin(), sums_.end(), 0.0f);
  length_ = 0;
}

std::span<const float> AttentionMass::OfQueryHead(int layer, int q_head) const {
  const int64_t head = int64_t{layer} * geometry_.q_heads + q_head;
  return {sums_.data() + head * context_tokens_, static_cast<size_t>(length_)};
}

std::vector<float> AttentionMass::OfKvHead(int layer, int kv_head, GroupMass group) const {
  const int ratio = geometry_.group_ratio();
  const std::span<const float> first = OfQueryHead(layer, kv_head * ratio);
  std::vector<float> mass(first.begin(), first.end());
  for (int g = 1; g < ratio; ++g) {
    const std::span<const float> more = OfQueryHead(layer, kv_head * ratio + g);
    for (size_t t = 0; t < mass.size(); ++t) {
      mass[t] = group == GroupMass::kSum ? mass[t] + more[t] : std::max(mass[t], more[t]);
    }
  }
  return mass;
}

}  // namespace kvant
