// The grammar of policy specs, and the check of what a policy is given.
#include <cmath>

#include "policy/tokens_for_test.h"

namespace kvant {
namespace {

using testing::Limits;
using testing::MustParse;
using testing::OwnedTokens;
using testing::WrittenTokens;

TEST(ParsePolicy, NamesSayEverythingAndReadBack) {
  const struct {
    std::string spec, name;
  } rows[] = {
      {"full", "full"},
      {"full:2,4", "full:2,4"},
      {"streaming", "streaming:4,512"},
      {"streaming:0,1", "streaming:0,1"},
      {"h2o", "h2o:0.1,0.1"},
      {"h2o:64", "h2o:64,0.1"},
      {"h2o:0.25,32,mean", "h2o:0.25,32,mean"},
      {"snapkv", "snapkv:all,5"},
      {"snapkv:0.3,7", "snapkv:0.3,7"},
      {"keydiff", "keydiff:all"},
      {"keydiff:100", "keydiff:100"},
      {"lagkv", "lagkv:all,128"},
      {"lagkv:0.5,32", "lagkv:0.5,32"},
      {"diffkv", "diffkv:0.02,1,8,4"},
      {"diffkv:0.02,1.0", "diffkv:0.02,1,8,4"},
      {"diffkv:0,3,4,2", "diffkv:0,3,4,2"},
      {"mikv", "mikv:0.2,8,2"},
      {"mikv:0.2,8,2", "mikv:0.2,8,2"},
      {"mikv:50,16,3", "mikv:50,16,3"},
      {"qaq:3", "qaq:3,2,4,8"},
      {"qaq:0.05,2,3,16", "qaq:0.05,2,3,16"},
      {"variance", "variance:2,4,8"},
      {"variance:4", "variance:4"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(MustParse(row.spec)->name(), row.name);
    EXPECT_EQ(MustParse(row.name)->name(), row.name);
  }
}

TEST(ParsePolicy, WhatIsWrongIsNamed) {
  const struct {
    std::string spec, word;
  } rows[] = {
      {"", "possible: full"},
      {"lru", "possible: full"},
      {"H2O", "possible: full"},
      {"duo", "head classes"},
      {"full:1", "'1'"},
      {"full:", "''"},
      {"full:4,2", "widths do not ascend"},
      {"streaming:4", ""},
      {"streaming:-1,512", "FIRST '-1'"},
      {"streaming:4,0", "RECENT '0'"},
      {"streaming:4,512,1", "'1' is one argument too many"},
      {"h2o:x", "HEAVY 'x'"},
      {"h2o:-0.1", "HEAVY '-0.1'"},
      {"h2o:1.5", "HEAVY '1.5' is neither a share below 1 nor a number of tokens"},
      {"h2o:nan", "HEAVY 'nan'"},
      {"h2o:0.1,0.1,median", "'median'"},
      {"snapkv:0.5,4", "POOL"},
      {"lagkv:0.5,0", "LAG '0'"},
      {"diffkv:0.5,0.1", "LOW '0.1'"},
      {"diffkv:2", "PRUNE is above LOW"},
      {"diffkv:0.02,1,4,8", "second width"},
      {"mikv:0.2,8,5", "width '5'"},
      {"mikv:0.2,2", "second width"},
      {"qaq", "ERROR"},
      {"qaq:0", "ERROR"},
      {"qaq:1,4,2", "ascend"},
      {"variance:2,2", "ascend"},
      {"variance:0", "width '0'"},
  };
  for (const auto& row : rows) {
    if (row.word.empty()) {
      EXPECT_TRUE(ParsePolicy(row.spec).ok()) << row.spec;
      continue;
    }
    const Status status = ParsePolicy(row.spec).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << row.spec;
    EXPECT_NE(status.message().find(row.word), std::string::npos)
        << row.spec << ": " << status.message();
  }
}

void ExpectRefused(const std::string& spec, const OwnedTokens& tokens, const PolicyLimits& limits,
                   const std::string& word) {
  const Status status = CheckPolicyInput(*MustParse(spec), tokens.view(), limits);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << word;
  EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
}

TEST(CheckPolicyInput, NamesWhatIsMissingOrWrong) {
  const OwnedTokens good = WrittenTokens(3, {1, 2, 3});
  ASSERT_TRUE(CheckPolicyInput(*MustParse("h2o"), good.view(), Limits(3)).ok());
  ASSERT_TRUE(CheckPolicyInput(*MustParse("full"), WrittenTokens(0).view(), Limits(0)).ok());
  ExpectRefused("h2o", WrittenTokens(3), Limits(3), "0 scores where there should be 3");
  ExpectRefused("keydiff", good, Limits(3), "head_dim 0");
  ExpectRefused("full", good, Limits(2), "position 2 lies outside a sequence of 2");
  OwnedTokens bad = good;
  bad.position[2] = 1;
  ExpectRefused("full", bad, Limits(3), "position 1 does not come after");
  bad = good;
  bad.width.pop_back();
  ExpectRefused("full", bad, Limits(3), "2 widths where there should be 3");
  bad = good;
  bad.width[1] = 17;
  ExpectRefused("full", bad, Limits(3), "17 bits");
  bad.width[1] = 5;
  ExpectRefused("full", bad, Limits(3), "5 bits, and their bytes are not given");
  bad = good;
  bad.score[1] = NAN;
  ExpectRefused("full", bad, Limits(3), "position 1 has a score of nan");
  bad.score[1] = -1;
  ExpectRefused("full", bad, Limits(3), "position 1 has a score of -1");
  bad = good;
  bad.head_dim = 2;
  bad.k.assign(6, 0);
  ExpectRefused("lagkv", bad, Limits(3), "lagkv:all,128 needs V");
  bad.k.pop_back();
  ExpectRefused("keydiff", bad, Limits(3), "5 values of keys where there should be 6");
  PolicyLimits limits = Limits(3);
  limits.token_bytes[8] = 0;
  ExpectRefused("mikv", good, limits, "needs tokens of 8 bits");
  limits.token_bytes[8] = 1;
  ExpectRefused("mikv", good, limits, "8 bits takes 1 bytes, less than a narrower one");
  limits = Limits(3);
  limits.budget_bytes = -1;
  ExpectRefused("full", good, limits, "negative");
}

}  // namespace
}  // namespace kvant
