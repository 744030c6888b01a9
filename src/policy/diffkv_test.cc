// DiffKV: thresholds, the four cases of a decode step, and its page sizes.
#include "policy/diffkv.h"

#include "policy/mikv.h"
#include "policy/tokens_for_test.h"

namespace kvant {
namespace {

using testing::Chosen;
using testing::Limits;
using testing::OwnedTokens;
using Widths = std::vector<uint8_t>;

// Thresholds of 1,000 tokens: 2e-5 and 1e-3.
TEST(DiffKv, ThresholdsOfThePrompt) {
  const DiffKvThresholds t{.02, 1.0};
  EXPECT_EQ(DiffKvWidth(t, 1e-5, 1000, 8, 4), 0);
  EXPECT_EQ(DiffKvWidth(t, 5e-4, 1000, 8, 4), 4);
  EXPECT_EQ(DiffKvWidth(t, 2e-3, 1000, 8, 4), 8);
  // On both sides of each.
  EXPECT_EQ(DiffKvWidth(t, 1.99e-5, 1000, 8, 4), 0);
  EXPECT_EQ(DiffKvWidth(t, 2.01e-5, 1000, 8, 4), 4);
  EXPECT_EQ(DiffKvWidth(t, .99e-3, 1000, 8, 4), 4);
  EXPECT_EQ(DiffKvWidth(t, 1.01e-3, 1000, 8, 4), 8);
}

TEST(DiffKv, ChoosesByThresholdAndSparesSinksAndWindow) {
  OwnedTokens tokens;
  tokens.position = {0, 1, 2, 3, 4, 999};
  tokens.score = {0, 1e-5f, 5e-4f, 2e-3f, 2e-3f, 0};
  tokens.width = {16, 16, 16, 16, 4, 16};
  EXPECT_EQ(Chosen("diffkv:0.02,1.0", tokens, Limits(1000, 1, 64)), (Widths{16, 0, 4, 8, 4, 16}));
  // Equal thresholds, as published for one model: nothing is ever of low precision.
  EXPECT_EQ(Chosen("diffkv:0.04,0.04", tokens, Limits(1000, 1, 64)), (Widths{16, 0, 8, 8, 4, 16}));
  EXPECT_EQ(Chosen("diffkv:0,3,4,2", tokens, Limits(1000, 1, 64)), (Widths{16, 2, 2, 2, 2, 16}));
}

// At position 1,000: 2e-5 and 1e-3 again.
TEST(DiffKv, FourCasesOfADecodeStep) {
  const DiffKvThresholds t{.02, 1.0};
  const auto step = [&](std::optional<double> high, std::optional<double> low) {
    return ChooseDiffKvStep(t, high, low, 1000);
  };
  EXPECT_EQ(step(1e-5, 3e-5), DiffKvStep::kReplaceHigh);
  EXPECT_EQ(step(1e-5, {}), DiffKvStep::kReplaceHigh);
  EXPECT_EQ(step(5e-4, 1e-5), DiffKvStep::kDemoteOverLow);
  EXPECT_EQ(step(5e-4, 3e-5), DiffKvStep::kDemoteToNew);
  EXPECT_EQ(step(5e-4, {}), DiffKvStep::kDemoteToNew);
  EXPECT_EQ(step(2e-3, 1e-5), DiffKvStep::kAppend);
  EXPECT_EQ(step({}, 1e-5), DiffKvStep::kAppend);
  EXPECT_EQ(step({}, {}), DiffKvStep::kAppend);
  // Both could go; the low victim is the lower one, so the high one still beats it.
  EXPECT_EQ(step(1e-5, .5e-5), DiffKvStep::kDemoteOverLow);
}

TEST(DiffKv, PagesOfThePublishedConfigurations) {
  struct {
    DiffKvPage page;
    int64_t token_bytes, page_tokens;
    double bits, waste_percent;
  } const rows[] = {{{8, 8, 1, 1}, 272, 24, 8.5, 3.77}, {{8, 4, 1, 2}, 212, 32, 6.625, 0},
                    {{8, 4, 1, 1}, 208, 32, 6.5, 1.89}, {{8, 2, 1, 1}, 176, 37, 5.5, 4.01},
                    {{4, 4, 1, 1}, 144, 46, 4.5, 2.36}, {{4, 2, 2, 4}, 128, 52, 4.0, 1.89},
                    {{4, 2, 1, 1}, 112, 60, 3.5, .94},  {{4, 1, 1, 1}, 96, 69, 3.0, 2.36}};
  for (const auto& row : rows) {
    const std::string name = std::to_string(row.token_bytes);
    EXPECT_EQ(row.page.token_bytes(), row.token_bytes);
    EXPECT_DOUBLE_EQ(row.page.bits(), row.bits) << name;
    EXPECT_EQ(row.page.PageTokens(kDiffKvPageBytes), row.page_tokens) << name;
    const auto used = static_cast<double>(row.page_tokens * row.token_bytes);
    // The table gives two digits.
    EXPECT_NEAR(100 * (1 - used / kDiffKvPageBytes), row.waste_percent, .005) << name;
  }
}

TEST(DiffKv, MeanBitsOfTheWorkedExample) {
  const WidthShare kinds[] = {{.2, 6.5}, {.6, 3.5}, {.2, 0}};
  EXPECT_NEAR(MeanBits(kinds), 3.4, 1e-12);
  EXPECT_NEAR(16 / MeanBits(kinds), 4.7, .05);
}

}  // namespace
}  // namespace kvant
