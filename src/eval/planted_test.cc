#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <string>
#include <vector>

#include "kvant/tasks.h"

namespace kvant {
namespace {

PlantedResult Planted(const std::string& preset, int head_dim, float offset) {
  const KvSpec spec = *ParseKvPreset(preset);
  Result<PlantedResult> result = RunPlanted(spec, {.head_dim = head_dim, .channel_offset = offset});
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : PlantedResult{};
}

TEST(Planted, AnF32CacheReadsThePlantedTokensAsAttentionInF64Does) {
  for (const int head_dim : {64, 128}) {
    const PlantedResult result = Planted("f32", head_dim, 0);
    EXPECT_EQ(result.queries, 32);
    EXPECT_NEAR(result.hit_rate, 1, 1e-9);
    EXPECT_GT(result.exact_mass, 0.7);
    EXPECT_LT(result.max_mass_error, 1e-4);
  }
}

TEST(Planted, AScaleThatOneTokenSharesWithTheOffsetLosesTheKey) {
  // Where the stress did nothing, the expectation below would say nothing.
  const PlantedResult plain = Planted("int4:token:none", 64, 0);
  const PlantedResult stressed = Planted("int4:token:none", 64, 200);
  EXPECT_GT(plain.hit_rate, 0.9);
  EXPECT_LT(stressed.hit_rate, 0.5);
}

TEST(Planted, ImpossibleOptionsAreRefused) {
  const KvSpec spec = *ParseKvPreset("f16");
  EXPECT_EQ(RunPlanted(spec, {.tokens = 511}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RunPlanted(spec, {.head_dim = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RunPlanted(spec, {.margin = NAN}).status().code(), StatusCode::kInvalidArgument);
}

class PlantedPreset : public testing::TestWithParam<std::string> {};

TEST_P(PlantedPreset, NoneNamedInt4OrInt8LosesRetrievalUnderTheOffsetStress) {
  for (const int head_dim : {64, 128}) {
    const PlantedResult plain = Planted(GetParam(), head_dim, 0);
    const PlantedResult stressed = Planted(GetParam(), head_dim, 200);
    EXPECT_GE(stressed.hit_rate, 0.97) << head_dim;
    // Too much mass is as wrong as too little.
    EXPECT_LT(stressed.max_mass_error, 2 * plain.max_mass_error + 0.01) << head_dim;
  }
}

std::vector<std::string> NamedInt4OrInt8() {
  std::vector<std::string> names;
  for (const std::string& name : KvPresetNames()) {
    if (name.starts_with("int4") || name.starts_with("int8")) names.push_back(name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Presets, PlantedPreset, testing::ValuesIn(NamedInt4OrInt8()),
                         [](const auto& preset) {
                           std::string name = preset.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace kvant
