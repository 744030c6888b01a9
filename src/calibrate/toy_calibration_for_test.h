// A calibration of a toy model, for the tests beside it.
#pragma once

#include "kvant/calibrate.h"
#include "model/toy_model_for_test.h"

namespace kvant {

inline constexpr int64_t kToySequence = 192;  // tokens

inline Calibration CalibrateToy(const Model& model, int64_t sequences = 2) {
  const auto text = ToyTokens(sequences * kToySequence, model.vocab_size(), 5);
  Result<Calibration> calibration = Calibrate(
      model, text,
      {.max_tokens = sequences * kToySequence, .sequence_tokens = kToySequence, .threads = 1});
  EXPECT_TRUE(calibration.ok()) << calibration.status().message();
  return std::move(calibration).value();
}

}  // namespace kvant
