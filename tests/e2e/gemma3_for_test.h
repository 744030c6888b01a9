// Gemma 3 270M, Q4_K_M, which `scripts/models --gemma` fetches.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>

#include "kvant/kvant.h"

namespace kvant {

inline constexpr char kModelPath[] = KVANT_SOURCE_DIR "/models/gemma3-270m-q4_k_m.gguf";

inline const Model& LoadOnce(bool float_activations) {
  static const Model models[] = {Model::Load(kModelPath, {.float_activations = false}).value(),
                                 Model::Load(kModelPath, {.float_activations = true}).value()};
  return models[float_activations ? 1 : 0];
}

class Gemma3 : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModelPath)) GTEST_SKIP() << kModelPath << " is not there";
    if (AvailableIsas().back() == Isa::kScalar) GTEST_SKIP() << "this build is scalar only";
  }
};

}  // namespace kvant
