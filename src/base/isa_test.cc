#include "kvant/isa.h"

#include <gtest/gtest.h>

namespace kvant {
namespace {

TEST(Isa, NamesRoundTripAndUnknownIsRefusedByName) {
  for (int i = 0; i < kIsaCount; ++i) {
    const Isa isa = static_cast<Isa>(i);
    const Result<Isa> parsed = ParseIsa(IsaName(isa));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, isa);
  }
  const Result<Isa> wrong = ParseIsa("avx1024");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("avx1024"), std::string::npos);
}

TEST(Isa, ScalarIsAlwaysThereAndSwitchingIsSeen) {
  const Isa before = ActiveIsa();
  ASSERT_TRUE(IsaAvailable(Isa::kScalar));
  for (Isa isa : AvailableIsas()) {
    ASSERT_TRUE(SetActiveIsa(isa).ok());
    EXPECT_EQ(ActiveIsa(), isa);
  }
  for (int i = 0; i < kIsaCount; ++i) {
    if (!IsaAvailable(static_cast<Isa>(i))) {
      EXPECT_EQ(SetActiveIsa(static_cast<Isa>(i)).code(), StatusCode::kUnsupported);
    }
  }
  ASSERT_TRUE(SetActiveIsa(before).ok());
}

TEST(Isa, LevelsOfAnotherArchitectureAreNeverAvailable) {
#if defined(__aarch64__)
  for (Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512}) EXPECT_FALSE(IsaAvailable(isa));
#else
  EXPECT_FALSE(IsaAvailable(Isa::kNeon));
#endif
}

#ifdef KVANT_EMULATED
// Otherwise every test of the level would pass without running it.
TEST(Isa, EmulatedCpuHasTheNeonLevel) { EXPECT_TRUE(IsaAvailable(Isa::kNeon)); }
#endif

}  // namespace
}  // namespace kvant
