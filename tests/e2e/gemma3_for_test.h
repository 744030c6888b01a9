// Gemma 3 270M, Q4_K_M, which `scripts/models --gemma` fetches.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>

#include "kvant/kvant.h"
#include "model_of_file.h"

namespace kvant {

inline constexpr char kGemma3Path[] = KVANT_SOURCE_DIR "/models/gemma3-270m-q4_k_m.gguf";

inline const Model& LoadGemma3(bool float_activations) {
  return LoadOnce<kGemma3Path>(float_activations);
}

class Gemma3 : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kGemma3Path)) GTEST_SKIP() << kGemma3Path << " is not there";
    if (AvailableIsas().back() == Isa::kScalar) GTEST_SKIP() << "this build is scalar only";
  }
};

}  // namespace kvant
