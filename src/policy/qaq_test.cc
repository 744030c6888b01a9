// QAQ: the widths of the worked examples, both formulas.
#include "policy/qaq.h"

#include <cmath>

#include "policy/tokens_for_test.h"

namespace kvant {
namespace {

using testing::Chosen;
using testing::Limits;
using testing::WrittenTokens;

TEST(Qaq, BitsOfValues) {
  const double scores[] = {.5, .05, .005, .0005};
  const double paper[] = {9, 6, 2, -1}, code[] = {8, 5, 2, 1};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(QaqValueBits(QaqFormula::kPaper, .05, 1024, scores[i], 4), paper[i]) << scores[i];
    EXPECT_EQ(QaqValueBits(QaqFormula::kCode, .05, 1024, scores[i], 4), code[i]) << scores[i];
  }
  EXPECT_EQ(QaqValueBits(QaqFormula::kPaper, .05, 1024, 0, 4), -INFINITY);
  EXPECT_EQ(QaqValueBits(QaqFormula::kPaper, .05, 1024, 0, 0), -INFINITY);
  EXPECT_EQ(QaqValueBits(QaqFormula::kCode, .05, 1024, 0, 4), 0);
}

TEST(Qaq, BitsOfKeys) {
  const double bounds[] = {.001, .01, 1, 3, 10};
  const double paper[] = {6, 5, 4, 4, 4}, code[] = {5, 4, 3, 3, 3};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(QaqKeyBits(QaqFormula::kPaper, bounds[i], 1024, 300, 8), paper[i]) << bounds[i];
    EXPECT_EQ(QaqKeyBits(QaqFormula::kCode, bounds[i], 1024, 300, 8), code[i]) << bounds[i];
  }
}

// 9, 6, 2 and -1 bits among widths that there are.
TEST(Qaq, TakesTheNarrowestWidthThatIsEnough) {
  testing::OwnedTokens tokens = WrittenTokens(5, {.5f, .05f, .005f, .0005f, 0});
  tokens.head_dim = 2;
  tokens.k.assign(10, 0);
  tokens.v = {-1, 3, -1, 3, 3, -1, -2, 2, 0, 0};
  EXPECT_EQ(Chosen("qaq:0.05", tokens, Limits(1024)), (std::vector<uint8_t>{8, 8, 2, 2, 2}));
  EXPECT_EQ(Chosen("qaq:0.05,2,3,4,8,16", tokens, Limits(1024)),
            (std::vector<uint8_t>{16, 8, 2, 2, 2}));
  EXPECT_EQ(Chosen("qaq:0.05,3,4", tokens, Limits(1024)), (std::vector<uint8_t>{4, 4, 3, 3, 3}));
}

}  // namespace
}  // namespace kvant
