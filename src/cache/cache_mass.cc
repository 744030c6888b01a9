// The attention mass of layers of several widths (head_mass.h): added step by step, moved with the
// tokens, and committed or dropped with the step.
#include <cassert>
#include <new>

#include "cache/cache_impl.h"
#include "cache/head_mass.h"
#include "cache/head_tokens.h"
#include "cache/pool_edit.h"

namespace kvant {

int Cache::Impl::sums_per_token() const {
  const ScoreKind kind =
      spec.mixed == nullptr ? ScoreKind::kNone : spec.mixed->policy->score_kind();
  return kind == ScoreKind::kNone ? 0 : SumsOf(kind, geometry.group_ratio());
}

bool Cache::Impl::measures_attention() const {
  return spec.mixed != nullptr && spec.mixed->policy->needs_scores();
}
bool Cache::measures_attention() const { return impl_->measures_attention(); }
bool Cache::measures_attention(int layer) const {
  return measures_attention() && impl_->layers[static_cast<size_t>(layer)].mixed != nullptr;
}

Status Cache::AddAttention(SequenceId id, int layer, int kv_head, const float* rows,
                           int64_t stride) try {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return impl_->NoSequence(id);
  HeadPages& head = impl_->HeadOf(*seq, layer, kv_head);
  assert(measures_attention(layer) && head.written_tokens == seq->length + seq->step_tokens);
  if (!head.mixed->policy->needs_scores()) return Status::Ok();
  const HeldPlaces places(*head.mixed, impl_->spec.sinks_tokens, head.sealed, head.written_tokens);
  AddStep(head.mixed->policy->score_kind(), places,
          {.rows = rows,
           .stride = stride,
           .first_position = seq->length,
           .queries = static_cast<int>(seq->step_tokens),
           .group_ratio = impl_->geometry.group_ratio()},
          &head.mixed->mass);
  return Status::Ok();
} catch (const std::bad_alloc&) {
  return Status::OutOfMemory("cannot allocate the attention mass of layer " +
                             std::to_string(layer));
}

Status Cache::SortByPosition(SequenceId id, int layer, int kv_head, int64_t rows, int64_t stride,
                             float* probabilities) const try {
  Sequence* seq = impl_->Find(id);
  if (seq == nullptr) return impl_->NoSequence(id);
  const HeadPages& head = impl_->HeadOf(*seq, layer, kv_head);
  if (head.mixed == nullptr) return Status::Ok();
  const HeldPlaces places(*head.mixed, impl_->spec.sinks_tokens, head.sealed, head.written_tokens);
  const int64_t sinks = std::min<int64_t>(impl_->spec.sinks_tokens, head.written_tokens);
  std::vector<float> pooled;
  for (int64_t r = 0; r < rows; ++r) {
    float* const row = probabilities + r * stride;
    pooled.assign(row + sinks, row + places.closed);
    std::fill(row + sinks, row + places.open_begin, 0.0f);
    const float* from = pooled.data();
    for (const HeadPool& pool : head.mixed->pools) {
      for (const int32_t position : pool.positions) row[position] = *from++;
    }
  }
  return Status::Ok();
} catch (const std::bad_alloc&) {
  return Status::OutOfMemory("cannot allocate the attention of layer " + std::to_string(layer));
}

// Whether steps since the last page told of every token that the head holds.
Status Cache::Impl::CheckMass(const HeadPages& head, int64_t length) const {
  const Policy& policy = *head.mixed->policy;
  if (!policy.needs_scores()) return Status::Ok();
  const HeldPlaces places(*head.mixed, spec.sinks_tokens, head.sealed, length);
  if (std::ssize(head.mixed->mass.now) == sums_per_token() * places.count()) return Status::Ok();
  return Status::InvalidArgument("policy " + policy.name() +
                                 " judges tokens by the attention they get, and the cache was not "
                                 "told of it in every step");
}

// The same of every head, between steps.
Status Cache::Impl::CheckAllMass(Sequence& seq) const {
  Status status;
  ForEachHead(seq, [&](const LayerStore& layer, const HeadPages& head) {
    if (status.ok() && layer.mixed != nullptr) status = CheckMass(head, seq.length);
  });
  return status;
}

// The mass of the tokens that stay, in the places of the pools after the edit, is `moved`, which
// has as many. Sums over recent queries start again with the page that begins.
void Cache::Impl::MoveMass(const HeadTokens& tokens, int64_t length, HeadPages& head,
                           std::vector<float> moved) const {
  HeadMass& mass = head.mixed->mass;
  if (head.mixed->policy->score_kind() == ScoreKind::kTotal) {
    auto to = moved.begin();
    const auto put = [&](int64_t position) {
      const size_t i = tokens.At(static_cast<int32_t>(position));
      *to++ = mass.now[static_cast<size_t>(tokens.held_place(i))];
    };
    for (int64_t t = 0; t < std::min<int64_t>(spec.sinks_tokens, length); ++t) put(t);
    for (const HeadPool& pool : head.mixed->pools) {
      for (const int32_t position : pool.positions) put(position);
    }
    const HeldPlaces places(*head.mixed, spec.sinks_tokens, head.sealed, length);
    for (int64_t t = places.open_begin; t < length; ++t) put(t);
    assert(to == moved.end());
  }
  if (head.mixed->can_undo) mass.before = std::move(mass.now);
  mass.now = std::move(moved);
}

// The sums of tokens that go leave, the others close up: places keep their order. Pools and length
// are those before the shift. Recent queries stay the same ones, as whole pages go and length mod
// 64 remains.
void Cache::Impl::ShiftMass(const TokenGap& gap, int64_t length, HeadPages& head) const {
  if (!head.mixed->policy->needs_scores()) return;
  std::vector<float>& now = head.mixed->mass.now;
  const HeldPlaces places(*head.mixed, spec.sinks_tokens, head.sealed, length);
  const int64_t sinks = std::min<int64_t>(spec.sinks_tokens, length);
  auto from = now.begin(), to = now.begin();
  const auto pass = [&](int64_t position) {
    if (!gap.Drops(position)) *to++ = *from;
    ++from;
  };
  for (int sum = 0; sum < sums_per_token(); ++sum) {
    for (int64_t t = 0; t < sinks; ++t) pass(t);
    for (const HeadPool& pool : head.mixed->pools) {
      for (const int32_t position : pool.positions) pass(position);
    }
    for (int64_t t = places.open_begin; t < length; ++t) pass(t);
  }
  assert(from == now.end());
  now.erase(to, now.end());
}

void Cache::Impl::CommitMass(HeadPages& head) const {
  HeadMass& mass = head.mixed->mass;
  mass.now.swap(mass.next);
  mass.next.clear();
  mass.before.clear();
}

}  // namespace kvant
