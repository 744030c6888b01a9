// The attention kernels, written once over 16-lane vectors and included by every ISA level inside
// an anonymous namespace, after its vec_*-inl.h. Read from the bottom up: AttendSegment is the main
// loop, and each step has a file of its own.

// In this order: each builds on the ones before.
// clang-format off
#include "attention/tiles-inl.h"
#include "attention/stream-inl.h"
#include "attention/dots-inl.h"
#include "attention/fold-inl.h"
#include "attention/scores-inl.h"
#include "attention/side_band-inl.h"
#include "attention/rope_scores-inl.h"
#include "attention/softmax-inl.h"
#include "attention/softmax_fold-inl.h"
#include "attention/values-inl.h"
// clang-format on

// The 16 levels of iq4_nl plus 128, so that the unsigned dot can read them.
alignas(16) constexpr uint8_t kTableLevels[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                  129, 141, 153, 166, 181, 197, 217, 241};

// Twice the values of E2M1 plus 128.
alignas(16) constexpr uint8_t kE2M1Levels[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                                 128, 127, 126, 125, 124, 122, 120, 116};

// Calls fn(low bits, high bits, code) with the constants of a coded format.
template <typename Fn>
inline void WithCodeKind(const Format& f, const Fn& fn) {
  using std::integral_constant;
  constexpr integral_constant<int, 0> k0;
  constexpr integral_constant<int, 1> k1;
  constexpr integral_constant<int, 2> k2;
  constexpr integral_constant<int, 4> k4;
  constexpr integral_constant<int, 8> k8;
  constexpr integral_constant<Code, Code::kPlain> plain;
  constexpr integral_constant<Code, Code::kTable> table;
  constexpr integral_constant<Code, Code::kNested> nested;
  constexpr integral_constant<Code, Code::kTrellis16> trellis16;
  constexpr integral_constant<Code, Code::kTrellis64> trellis64;
  switch (f.levels) {
    case Levels::kCodebook:
    case Levels::kE2M1:
      return fn(k4, k0, table);
    case Levels::kLloydMax:
    case Levels::kFitted:
      return f.bits == 4   ? fn(k4, k0, table)
             : f.bits == 3 ? fn(k2, k1, table)
             : f.bits == 2 ? fn(k2, k0, table)
                           : fn(k1, k0, table);
    case Levels::kNested:
      return f.bits == 4 ? fn(k2, k1, nested) : f.bits == 3 ? fn(k2, k1, table) : fn(k2, k0, table);
    case Levels::kTrellis16:
      return f.bits == 3 ? fn(k2, k1, trellis16) : fn(k2, k0, trellis16);
    case Levels::kTrellis64: {
      const auto with = [&](auto code) {
        f.bits == 4 ? fn(k4, k0, code) : f.bits == 3 ? fn(k2, k1, code) : fn(k2, k0, code);
      };
      if constexpr (kHasPermute64) {
        constexpr integral_constant<Code, Code::kTrellis64Permute> permute;
        if (CanPermuteBytes()) return with(permute);
      }
      return with(trellis64);
    }
    default:
      break;
  }
  switch (f.bits) {
    case 8:
      return fn(k8, k0, plain);
    case 6:
      return fn(k4, k2, plain);
    case 5:
      return fn(k4, k1, plain);
    case 4:
      return fn(k4, k0, plain);
    case 3:
      return fn(k2, k1, plain);
    default:
      return fn(k2, k0, plain);
  }
}

// The levels of a table plus 128; not read where codes are plain.
inline const uint8_t* LevelsFor(const SideLayout& side) {
  if (side.format.is_normed()) return LevelTableOf(side).kernel_levels;
  return side.format.is_float4() ? kE2M1Levels : kTableLevels;
}

// Whether values lie as in a float side.
inline bool HasFloatValues(const Format& f) { return f.is_float() || f.is_float8(); }

// Calls fn(type) with the type of such values as a constant.
template <typename Fn>
inline void WithValueType(const Format& f, const Fn& fn) {
  using std::integral_constant;
  if (f.levels == Levels::kE4M3) return fn(integral_constant<Value, Value::kE4M3>{});
  if (f.levels == Levels::kE5M2) return fn(integral_constant<Value, Value::kE5M2>{});
  switch (f.float_type) {
    case FloatType::kF32:
      return fn(integral_constant<Value, Value::kF32>{});
    case FloatType::kF16:
      return fn(integral_constant<Value, Value::kF16>{});
    case FloatType::kBf16:
      return fn(integral_constant<Value, Value::kBf16>{});
  }
}

inline void ScoreSegment(const Segment& segment, const SegmentRows& rows, Stream& stream,
                         SegmentScratch& s) {
  const SideLayout& side = segment.layout->k;
  if (HasFloatValues(side.format)) {
    WithValueType(side.format, [&](auto type) {
      for (int i = 0; i < segment.num_blocks; ++i) {
        ScoreFloatBlock<decltype(type)::value>(side, segment.blocks[i], i, rows, stream, s);
      }
    });
    return;
  }
  const uint8_t* const levels = LevelsFor(side);
  WithCodeKind(side.format, [&](auto low_bits, auto high_bits, auto code) {
    constexpr int kLow = decltype(low_bits)::value, kHigh = decltype(high_bits)::value;
    constexpr Code kCode = decltype(code)::value;
    if constexpr (kCode != Code::kPlain && kLow != 1) {  // 1 bit is for V
      if (side.format.is_normed()) {
        return ScoreNormedSegment<kLow, kHigh, kCode>(segment, levels, rows, stream, s);
      }
    }
    if constexpr (kCode == Code::kPlain || (kCode == Code::kTable && kLow == 4)) {
      if constexpr (kCode == Code::kPlain) {
        if (side.format.pre_rope) {
          return ScorePreRopeSegment<kLow, kHigh>(segment, rows, stream, s);
        }
      }
      if (side.format.axis == Axis::kToken) {
        ScoreTokenSegment<kLow, kHigh, kCode>(segment, levels, rows, stream, s);
      } else if constexpr (kCode == Code::kPlain) {
        ScoreChannelSegment<kLow, kHigh, kCode>(segment, levels, rows, stream, s);
      }
    }
  });
  if (side.format.outliers > 0 && !side.format.pre_rope) AddOutlierScores(segment, rows, s);
}

inline void AccumulateSegment(const Segment& segment, const SegmentRows& rows, Stream& stream,
                              SegmentScratch& s) {
  const SideLayout& side = segment.layout->v;
  const auto each_block = [&](const auto& accumulate) {
    for (int i = 0; i < segment.num_blocks; ++i) {
      accumulate(segment.blocks[i].page + segment.layout->v_offset_bytes, segment.blocks[i], i);
    }
  };
  if (HasFloatValues(side.format)) {
    WithValueType(side.format, [&](auto type) {
      each_block([&](const std::byte* base, const BlockRef& ref, int i) {
        AccumulateFloatBlock<decltype(type)::value>(side, base, ref, i, rows, stream, s);
      });
    });
    return;
  }
  const uint8_t* const levels = LevelsFor(side);
  WithCodeKind(side.format, [&](auto low_bits, auto high_bits, auto code) {
    constexpr int kLow = decltype(low_bits)::value, kHigh = decltype(high_bits)::value;
    constexpr Code kCode = decltype(code)::value;
    if (kCode != Code::kPlain || side.format.axis == Axis::kToken) {
      AccumulateTokenSegment<kLow, kHigh, kCode>(segment, levels, rows, stream, s);
    } else if constexpr (kCode == Code::kPlain) {
      each_block([&](const std::byte* base, const BlockRef& ref, int i) {
        AccumulateChannelBlock<kLow, kHigh, kCode>(side, base, ref, i, levels, rows, stream, s);
      });
    }
  });
  if (side.format.outliers > 0) AddOutlierValues(segment, rows, s);
}

inline void Softmax(const Segment& segment, SegmentRows& rows, Stream& stream, SegmentScratch& s) {
  const SideLayout& side = segment.layout->v;
  if (HasFloatValues(side.format) || side.format.axis == Axis::kChannel) {
    for (int r = 0; r < rows.rows; ++r) {
      SoftmaxRow(segment, rows.begin[r], rows.end[r], s.scores[r], rows.out[r]);
    }
    return;
  }
  const int dot_lines =
      segment.num_blocks * DotLines(side.format.bits, side.padded_dim / kLaneBlock) *
      (kPageTokens / kStep) * DivideUp(rows.rows * TermsFor(side.format.bits), kTileRows);
  const int lines = stream.BurstLines(segment.num_blocks, dot_lines);
  WithRows(rows.rows, [&](auto nr) {
    constexpr int NR = decltype(nr)::value;
    TermsFor(side.format.bits) == 1 ? SoftmaxFold<NR, 1>(segment, rows, lines, stream, s)
                                    : SoftmaxFold<NR, 2>(segment, rows, lines, stream, s);
  });
}

void AttendSegment(const Segment& segment, SegmentRows& rows, SegmentScratch& s) {
  Stream stream(segment);
  ScoreSegment(segment, rows, stream, s);
  HandOverScores(segment, rows, s);
  Softmax(segment, rows, stream, s);
  for (int r = 0; r < rows.rows; ++r) {
    for (int c = 0; c < segment.layout->v.padded_dim; c += kLaneBlock) {
      Store(rows.out[r].weighted + c, Zero());
    }
  }
  AccumulateSegment(segment, rows, stream, s);
  stream.Finish();
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

void ScoresToProbabilities(const PartialState& state, int64_t count, float* scores) {
  const F max = Set(state.max), inverse = Set(1.0f / state.sum);
  const auto weigh = [&](float* at) { Store(at, Mul(Exp2(Sub(Load(at), max)), inverse)); };
  const int64_t whole = count / kLaneBlock * kLaneBlock;
  for (int64_t i = 0; i < whole; i += kLaneBlock) weigh(scores + i);
  if (whole == count) return;
  alignas(64) float lanes[kLaneBlock];
  Store(lanes, max);
  const size_t bytes = static_cast<size_t>(count - whole) * sizeof(float);
  std::memcpy(lanes, scores + whole, bytes);
  weigh(lanes);
  std::memcpy(scores + whole, lanes, bytes);
}
