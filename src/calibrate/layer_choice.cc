// Chooses formats layer by layer: kvant/calibrate.h tells how.
#include <algorithm>
#include <array>
#include <string>

#include "kvant/calibrate.h"
#include "kvant/eval.h"

namespace kvant {
namespace {

constexpr int kLeastBits = 2, kMostBits = 4;
// Mean square error of the levels of 2, 3 and 4 bits (codec/level_tables.h).
constexpr std::array<double, 3> kLevelError = {.1175, .0345, .0095};
constexpr size_t kTestsAtOnce = 15;  // sessions side by side; each holds an f16 cache

Format FormatOf(Side side, int bits) {
  Format format{.levels = Levels::kLloydMax, .bits = bits};
  format.norms_8bit = true;
  format.page_mean = format.balanced = side == Side::kK;
  return format;
}

// One side of one layer, with what its 2 bits alone cost.
struct LayerSide {
  int layer;
  Side side;
  int bits = kLeastBits;
  double kl = 0;

  // KL that one bit more takes off, for a bit more of every value.
  double Gain() const {
    const auto at = static_cast<size_t>(bits - kLeastBits);
    return kl * (kLevelError[at] - kLevelError[at + 1]) / kLevelError[0];
  }
};

// Without tests.
EvalOptions EvalOptionsOf(const LayerChoiceOptions& o) {
  EvalOptions eval;
  eval.contexts_tokens = {o.context_tokens};
  eval.max_scored_tokens = o.scored_tokens;
  eval.threads = o.threads;
  return eval;
}

Status MeasureSides(const Model& model, std::span<const int32_t> text, const LayerChoiceOptions& o,
                    const RunControl& control, std::vector<LayerSide>* sides) {
  const auto layers = static_cast<size_t>(model.geometry().layers);
  for (size_t first = 0; first < sides->size(); first += kTestsAtOnce) {
    const size_t end = std::min(first + kTestsAtOnce, sides->size());
    EvalOptions eval = EvalOptionsOf(o);
    for (size_t i = first; i < end; ++i) {
      const LayerSide& s = (*sides)[i];
      KvSpec& spec = eval.tests.emplace_back();
      spec.layers.assign(layers, {kFormatF16, kFormatF16});
      FormatPair& pair = spec.layers[static_cast<size_t>(s.layer)];
      (s.side == Side::kK ? pair.k : pair.v) = FormatOf(s.side, kLeastBits);
    }
    KVANT_ASSIGN_OR_RETURN(const std::vector<EvalContext> results,
                           Evaluate(model, text, eval, {.progress = {}, .cancel = control.cancel}));
    for (size_t i = first; i < end; ++i) (*sides)[i].kl = results[i - first].mean_kl;
    if (control.progress) {
      control.progress(static_cast<int64_t>(end), static_cast<int64_t>(sides->size()));
    }
  }
  return Status::Ok();
}

// All sides of all layers, at the least bits.
std::vector<LayerSide> LeastSides(int layers) {
  std::vector<LayerSide> sides;
  for (int layer = 0; layer < layers; ++layer) {
    sides.push_back({.layer = layer, .side = Side::kK});
    sides.push_back({.layer = layer, .side = Side::kV});
  }
  return sides;
}

// Sum over all sides of the bits of a value.
double BitsOf(const std::vector<LayerSide>& sides, int head_dim) {
  double bits = 0;
  for (const LayerSide& s : sides) bits += FormatOf(s.side, s.bits).EffectiveBits(head_dim);
  return bits;
}

}  // namespace

std::optional<int64_t> TokensToChooseFrom(const LayerChoiceOptions& options) {
  return TokensToEvaluate(EvalOptionsOf(options));
}

Status CheckLayerChoice(const KvGeometry& g, const LayerChoiceOptions& o) {
  const double least = BitsOf(LeastSides(1), g.head_dim) / 2;
  if (least <= o.budget_bits) return Status::Ok();
  return Status::InvalidArgument("a budget of " + std::to_string(o.budget_bits) +
                                 " bits a value is below the " + std::to_string(least) +
                                 " of 2-bit codes everywhere");
}

Result<std::vector<FormatPair>> ChooseLayerFormats(const Model& model,
                                                   std::span<const int32_t> text,
                                                   const LayerChoiceOptions& o,
                                                   const RunControl& control) {
  const KvGeometry g = model.geometry();
  KVANT_RETURN_IF_ERROR(CheckLayerChoice(g, o));
  std::vector<LayerSide> sides = LeastSides(g.layers);
  const double budget = o.budget_bits * static_cast<double>(sides.size());
  double bits = BitsOf(sides, g.head_dim);
  KVANT_RETURN_IF_ERROR(MeasureSides(model, text, o, control, &sides));
  // A bit more costs every side the same, so the best bits are bought in order of their gain.
  for (; bits + 1 <= budget + 1e-9; bits += 1) {
    LayerSide* best = nullptr;
    for (LayerSide& s : sides) {
      if (s.bits < kMostBits && (best == nullptr || s.Gain() > best->Gain())) best = &s;
    }
    if (best == nullptr) break;
    ++best->bits;
  }
  std::vector<FormatPair> formats;
  for (size_t i = 0; i < sides.size(); i += 2) {
    formats.push_back({FormatOf(Side::kK, sides[i].bits), FormatOf(Side::kV, sides[i + 1].bits)});
  }
  return formats;
}

}  // namespace kvant
