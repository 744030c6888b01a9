// What every policy must hold to, whatever it is given: kvant/policy.h has the list.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cctype>

#include "policy/tokens_for_test.h"

namespace kvant {
namespace {

using testing::Chosen;
using testing::OwnedTokens;

struct World {
  OwnedTokens tokens;
  PolicyLimits limits;
};

// Takes few values out of one drawn number: drawing each on its own takes seconds.
class Digits {
 public:
  explicit Digits(uint64_t number) : number_(number) {}
  int Next(int below) {
    const auto digit = static_cast<int>(number_ % static_cast<uint64_t>(below));
    number_ /= static_cast<uint64_t>(below);
    return digit;
  }

 private:
  uint64_t number_;
};

// Few values of everything, so that ties are common.
World AnyWorld() {
  World world;
  const auto numbers = *rc::gen::container<std::vector<uint64_t>>(
      *rc::gen::inRange<size_t>(0, 60), rc::gen::inRange<uint64_t>(0, UINT64_MAX));
  PolicyLimits& limits = world.limits;
  limits.length = static_cast<int64_t>(numbers.size());
  limits.sinks = *rc::gen::inRange(0, 5);
  limits.window_tokens = *rc::gen::inRange(0, 12);
  limits.token_bytes = testing::UsualTokenBytes();
  limits.token_bytes[kDroppedWidth] = *rc::gen::inRange(0, 3);
  limits.budget_bytes = *rc::gen::element(0, 1) == 0 ? 0 : *rc::gen::inRange(1, 264 * 60);
  OwnedTokens& tokens = world.tokens;
  tokens.head_dim = 3;
  for (int position = 0; position < limits.length; ++position) {
    Digits digits(numbers[static_cast<size_t>(position)]);
    if (digits.Next(8) == 7) continue;  // left out: dropped before
    constexpr uint8_t kWidths[] = {16, 16, 16, 8, 4, 3, 2, 0};
    tokens.position.push_back(position);
    tokens.width.push_back(kWidths[digits.Next(8)]);
    tokens.score.push_back(static_cast<float>(digits.Next(6)) / 64);
    for (int c = 0; c < tokens.head_dim; ++c) {
      tokens.k.push_back(static_cast<float>(digits.Next(5) - 2));
      tokens.v.push_back(static_cast<float>(digits.Next(5) - 2));
    }
  }
  if (tokens.v.empty()) tokens.v.push_back(0);  // a span of none is not null
  return world;
}

bool IsProtected(const World& world, size_t i) {
  const int64_t position = world.tokens.position[i];
  return position < world.limits.sinks ||
         position >= world.limits.length - world.limits.window_tokens;
}

int64_t BytesOf(const World& world, const std::vector<uint8_t>& width) {
  int64_t bytes = 0;
  for (const uint8_t w : width) bytes += world.limits.token_bytes[w];
  return bytes;
}

// With the usual 100 checks of RapidCheck: some mistakes show in one world of 500.
constexpr int kWorldsACheck = 10;

class PolicyProperty : public ::testing::TestWithParam<std::string> {
 protected:
  // Checks `property(world, chosen)` in many worlds; it may use RC_ASSERT.
  template <typename Property>
  void ForAnyWorld(const Property& property) {
    const std::unique_ptr<Policy> policy = testing::MustParse(GetParam());
    EXPECT_TRUE(rc::check(GetParam(), [&] {
      for (int i = 0; i < kWorldsACheck; ++i) {
        const World world = AnyWorld();
        const Status status = CheckPolicyInput(*policy, world.tokens.view(), world.limits);
        RC_ASSERT(status.ok());
        std::vector<uint8_t> width(world.tokens.position.size(), 77);
        policy->Choose(world.tokens.view(), world.limits, width);
        property(*policy, world, width);
      }
    }));
  }
};

TEST_P(PolicyProperty, SinksAndWindowKeepTheirWidthAndNoneGrows) {
  ForAnyWorld([](const Policy&, const World& world, const std::vector<uint8_t>& width) {
    for (size_t i = 0; i < width.size(); ++i) {
      RC_ASSERT(width[i] <= world.tokens.width[i]);
      if (IsProtected(world, i)) RC_ASSERT(width[i] == world.tokens.width[i]);
    }
  });
}

TEST_P(PolicyProperty, GivesOnlyWidthsThatItNames) {
  ForAnyWorld([](const Policy& policy, const World& world, const std::vector<uint8_t>& width) {
    const std::vector<int> widths = policy.widths();
    RC_ASSERT(std::is_sorted(widths.begin(), widths.end()));
    for (size_t i = 0; i < width.size(); ++i) {
      RC_ASSERT(width[i] == world.tokens.width[i] || width[i] == kDroppedWidth ||
                std::count(widths.begin(), widths.end(), width[i]) == 1);
    }
  });
}

TEST_P(PolicyProperty, TheMoreImportantTokenIsNeverTheNarrowerOne) {
  ForAnyWorld([](const Policy& policy, const World& world, const std::vector<uint8_t>& width) {
    std::vector<double> importance(width.size());
    policy.Importance(world.tokens.view(), world.limits, importance);
    for (size_t i = 0; i < width.size(); ++i) {
      for (size_t j = 0; j < width.size(); ++j) {
        if (IsProtected(world, i) || IsProtected(world, j)) continue;
        if (world.tokens.width[i] < world.tokens.width[j]) continue;
        // Of equals the lower position wins.
        const bool ahead =
            importance[i] > importance[j] || (importance[i] == importance[j] && i < j);
        if (ahead) RC_ASSERT(width[i] >= width[j]);
      }
    }
  });
}

TEST_P(PolicyProperty, BytesStayWithinTheBudgetUnlessOnlySinksAndWindowAreLeft) {
  ForAnyWorld([](const Policy&, const World& world, const std::vector<uint8_t>& width) {
    if (world.limits.budget_bytes == 0 || BytesOf(world, width) <= world.limits.budget_bytes)
      return;
    for (size_t i = 0; i < width.size(); ++i) {
      RC_ASSERT(IsProtected(world, i) || width[i] == kDroppedWidth);
    }
  });
}

// Where what is dropped still stands there, and where it is left out from then on.
TEST_P(PolicyProperty, ChoosingAgainChangesNothing) {
  ForAnyWorld([](const Policy& policy, const World& world, const std::vector<uint8_t>& width) {
    OwnedTokens again = world.tokens;
    again.width = width;
    RC_ASSERT(Chosen(policy, again, world.limits) == width);
    OwnedTokens rest;
    rest.head_dim = again.head_dim;
    for (size_t i = 0; i < width.size(); ++i) {
      if (width[i] == kDroppedWidth) continue;
      rest.position.push_back(again.position[i]);
      rest.width.push_back(width[i]);
      rest.score.push_back(again.score[i]);
      for (size_t c = 3 * i; c < 3 * i + 3; ++c) {
        rest.k.push_back(again.k[c]);
        rest.v.push_back(again.v[c]);
      }
    }
    if (rest.v.empty()) rest.v.push_back(0);
    RC_ASSERT(Chosen(policy, rest, world.limits) == rest.width);
  });
}

TEST_P(PolicyProperty, TheSameInputGivesTheSameWidths) {
  ForAnyWorld([](const Policy& policy, const World& world, const std::vector<uint8_t>& width) {
    RC_ASSERT(Chosen(policy, world.tokens, world.limits) == width);
  });
}

const std::vector<std::string> kSpecs = {"full",         "streaming:4,20", "streaming:0,5",
                                         "h2o",          "h2o:3,4",        "h2o:0.3,0,mean",
                                         "snapkv:0.5",   "snapkv:all,3",   "keydiff:0.5",
                                         "keydiff",      "lagkv:0.5,4",    "lagkv:all,3",
                                         "diffkv:0.5,2", "diffkv:0,3,4,2", "mikv:0.3,8,2",
                                         "mikv:5,16,3",  "qaq:0.05",       "qaq:0.5,2,3,16",
                                         "variance",     "variance:3,4",   "full:2,4"};

std::string TestName(const ::testing::TestParamInfo<std::string>& spec) {
  std::string name = spec.param;
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Policies, PolicyProperty, ::testing::ValuesIn(kSpecs), TestName);

// Of policies that go by the score alone: a higher score never gets a narrower width, all else
// being equal.
class ScoreProperty : public PolicyProperty {};

TEST_P(ScoreProperty, AHigherScoreNeverGetsANarrowerWidth) {
  ForAnyWorld([](const Policy& policy, const World& world, const std::vector<uint8_t>&) {
    OwnedTokens alike = world.tokens;
    for (size_t i = 0; i < alike.k.size(); ++i) {
      alike.k[i] = alike.k[i % 3];
      alike.v[i] = alike.v[i % 3];
    }
    const auto width = Chosen(policy, alike, world.limits);
    for (size_t i = 0; i < width.size(); ++i) {
      for (size_t j = 0; j < width.size(); ++j) {
        if (IsProtected(world, i) || IsProtected(world, j)) continue;
        if (alike.score[i] > alike.score[j] && alike.width[i] >= alike.width[j]) {
          RC_ASSERT(width[i] >= width[j]);
        }
      }
    }
  });
}

const std::vector<std::string> kScoreSpecs = {"h2o:0.3,0", "diffkv:0.5,2", "mikv:0.3,8,2",
                                              "qaq:0.05", "variance"};
INSTANTIATE_TEST_SUITE_P(Policies, ScoreProperty, ::testing::ValuesIn(kScoreSpecs), TestName);

}  // namespace
}  // namespace kvant
