// The attention kernels, written once over 16-lane vectors and included by every ISA level inside
// an anonymous namespace, after its vec_*-inl.h. Read from the bottom up: AttendSegment is the main
// loop, and each step has a file of its own.

// In this order: each builds on the ones before.
// clang-format off
#include "attention/tiles-inl.h"
#include "attention/dots-inl.h"
#include "attention/fold-inl.h"
#include "attention/prefetch-inl.h"
#include "attention/scores-inl.h"
#include "attention/softmax-inl.h"
#include "attention/values-inl.h"
// clang-format on

// The 16 levels of iq4_nl plus 128, so that the unsigned dot can read them.
alignas(16) constexpr uint8_t kTableLevels[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                  129, 141, 153, 166, 181, 197, 217, 241};

// Calls fn(low bits, high bits, table?) with the constants of a coded format.
template <typename Fn>
inline void WithCodeKind(const Format& f, const Fn& fn) {
  using std::integral_constant;
  const auto kind = [&](auto low, auto high, auto table) { fn(low, high, table); };
  constexpr integral_constant<int, 0> k0;
  constexpr integral_constant<int, 1> k1;
  constexpr integral_constant<int, 2> k2;
  constexpr integral_constant<int, 4> k4;
  constexpr integral_constant<int, 8> k8;
  if (f.levels == Levels::kCodebook) return kind(k4, k0, std::true_type{});
  switch (f.bits) {
    case 8:
      return kind(k8, k0, std::false_type{});
    case 6:
      return kind(k4, k2, std::false_type{});
    case 5:
      return kind(k4, k1, std::false_type{});
    case 4:
      return kind(k4, k0, std::false_type{});
    case 3:
      return kind(k2, k1, std::false_type{});
    default:
      return kind(k2, k0, std::false_type{});
  }
}

inline void ScoreSegment(const Segment& segment, const SegmentRows& rows, SegmentScratch& s) {
  const SideLayout& side = segment.layout->k;
  const auto each_block = [&](const auto& score) {
    for (int i = 0; i < segment.num_blocks; ++i) {
      PrefetchVMetadata(segment, i);
      score(segment.blocks[i], i);
    }
  };
  if (side.format.is_float()) {
    each_block([&](const BlockRef& ref, int i) {
      const std::byte* next = AfterK(segment, i);
      switch (side.format.float_type) {
        case FloatType::kF32:
          return ScoreFloatBlock<FloatType::kF32>(side, ref, i, next, rows, s);
        case FloatType::kF16:
          return ScoreFloatBlock<FloatType::kF16>(side, ref, i, next, rows, s);
        case FloatType::kBf16:
          return ScoreFloatBlock<FloatType::kBf16>(side, ref, i, next, rows, s);
      }
    });
    return;
  }
  const B table = LoadTable(kTableLevels);
  WithCodeKind(side.format, [&](auto low, auto high, auto is_table) {
    if (side.format.axis == Axis::kToken) {
      ScoreTokenSegment<decltype(low)::value, decltype(high)::value, decltype(is_table)::value>(
          segment, table, rows, s);
    } else {
      ScoreChannelSegment<decltype(low)::value, decltype(high)::value, decltype(is_table)::value>(
          segment, table, rows, s);
    }
  });
}

inline void AccumulateSegment(const Segment& segment, const SegmentRows& rows, SegmentScratch& s) {
  const SideLayout& side = segment.layout->v;
  const auto each_block = [&](const auto& accumulate) {
    for (int i = 0; i < segment.num_blocks; ++i) {
      PrefetchNextKMetadata(segment, i);
      accumulate(segment.blocks[i].page + segment.layout->v_offset_bytes, segment.blocks[i], i);
    }
  };
  if (side.format.is_float()) {
    each_block([&](const std::byte* base, const BlockRef& ref, int i) {
      const std::byte* next = AfterV(segment, i);
      switch (side.format.float_type) {
        case FloatType::kF32:
          return AccumulateFloatBlock<FloatType::kF32>(side, base, ref, i, next, rows, s);
        case FloatType::kF16:
          return AccumulateFloatBlock<FloatType::kF16>(side, base, ref, i, next, rows, s);
        case FloatType::kBf16:
          return AccumulateFloatBlock<FloatType::kBf16>(side, base, ref, i, next, rows, s);
      }
    });
    return;
  }
  const B table = LoadTable(kTableLevels);
  WithCodeKind(side.format, [&](auto low, auto high, auto is_table) {
    if (side.format.axis == Axis::kToken) {
      AccumulateTokenSegment<decltype(low)::value, decltype(high)::value,
                             decltype(is_table)::value>(segment, table, rows, s);
    } else {
      each_block([&](const std::byte* base, const BlockRef& ref, int i) {
        AccumulateChannelBlock<decltype(low)::value, decltype(high)::value,
                               decltype(is_table)::value>(side, base, ref, i, table, rows, s);
      });
    }
  });
}

void AttendSegment(const Segment& segment, SegmentRows& rows, SegmentScratch& s) {
  ScoreSegment(segment, rows, s);
  for (int r = 0; r < rows.rows; ++r) {
    SoftmaxRow(segment, rows.end[r], s.scores[r], rows.out[r]);
    for (int c = 0; c < segment.layout->v.padded_dim; c += kLaneBlock) {
      Store(rows.out[r].weighted + c, Zero());
    }
  }
  AccumulateSegment(segment, rows, s);
}

void MergeStates(PartialState& into, const PartialState& from, int padded_dim) {
  if (from.sum == 0.0f) return;
  const bool first = into.sum == 0.0f;
  const float max = first || from.max > into.max ? from.max : into.max;
  const F keep = first ? Zero() : Exp2(Set(into.max - max));
  const F add = Exp2(Set(from.max - max));
  for (int c = 0; c < padded_dim; c += kLaneBlock) {
    const F scaled = Mul(Load(from.weighted + c), add);
    Store(into.weighted + c, first ? scaled : Fma(Load(into.weighted + c), keep, scaled));
  }
  const F sums = Mul(Set(from.sum), add);
  alignas(64) float lanes[kLaneBlock];
  Store(lanes, first ? sums : Fma(Set(into.sum), keep, sums));
  into.sum = lanes[0];
  into.max = max;
}

void FinishState(const PartialState& state, int head_dim, float* out) {
  const F inverse = Set(1.0f / state.sum);
  alignas(64) float lanes[kLaneBlock];
  for (int c = 0; c < head_dim; c += kLaneBlock) {
    Store(lanes, Mul(Load(state.weighted + c), inverse));
    const int count = head_dim - c < kLaneBlock ? head_dim - c : kLaneBlock;
    std::memcpy(out + c, lanes, static_cast<size_t>(count) * sizeof(float));
  }
}
