#include "model/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kvant {
namespace {

// A vocabulary over the letters of `alphabet`, grown by merges of random tokens.
struct Vocabulary {
  std::vector<std::string> tokens, merges;
  std::map<std::pair<std::string, std::string>, int> ranks;

  std::unordered_map<std::string_view, int32_t> Ids() const {
    std::unordered_map<std::string_view, int32_t> ids;
    for (size_t i = 0; i < tokens.size(); ++i) ids[tokens[i]] = static_cast<int32_t>(i);
    return ids;
  }
};

Vocabulary RandomVocabulary(std::string_view alphabet, int merge_count, uint32_t seed) {
  Vocabulary v;
  for (const char c : alphabet) v.tokens.emplace_back(1, c);
  std::mt19937 random(seed);
  while (static_cast<int>(v.merges.size()) < merge_count) {
    const std::string left = v.tokens[random() % v.tokens.size()];
    const std::string right = v.tokens[random() % v.tokens.size()];
    if (left.size() + right.size() > 6) continue;
    if (!v.ranks.try_emplace({left, right}, static_cast<int>(v.merges.size())).second) continue;
    v.merges.push_back(left + " " + right);
    const std::string joined = left + right;
    if (std::find(v.tokens.begin(), v.tokens.end(), joined) == v.tokens.end()) {
      v.tokens.push_back(joined);
    }
  }
  return v;
}

// The definition: merge the leftmost pair of the best rank until there is none.
std::vector<std::string> MergeSlowly(const Vocabulary& v, std::string_view word) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    int best_rank = -1;
    size_t best = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = v.ranks.find({parts[i], parts[i + 1]});
      if (it == v.ranks.end() || (best_rank >= 0 && it->second >= best_rank)) continue;
      best_rank = it->second;
      best = i;
    }
    if (best_rank < 0) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

Bpe MakeBpe(const Vocabulary& v) {
  const std::vector<std::string_view> merges(v.merges.begin(), v.merges.end());
  Result<Bpe> bpe = Bpe::Create(v.Ids(), merges);
  EXPECT_TRUE(bpe.ok()) << bpe.status().message();
  return std::move(bpe).value();
}

std::vector<std::string> Merge(const Vocabulary& v, const Bpe& bpe, Bpe::Scratch& scratch,
                               std::string_view word) {
  std::vector<int32_t> ids;
  bpe.Append(word, scratch, ids);
  std::vector<std::string> parts;
  for (const int32_t id : ids) parts.push_back(v.tokens.at(static_cast<size_t>(id)));
  return parts;
}

TEST(Bpe, QueueGivesTheMergesOfTheDefinition) {
  std::mt19937 random(3);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Vocabulary v = RandomVocabulary("abc", 40, seed);
    const Bpe bpe = MakeBpe(v);
    Bpe::Scratch scratch;
    for (int i = 0; i < 200; ++i) {
      std::string word(random() % 40, ' ');
      for (char& c : word) c = "abc"[random() % 3];
      ASSERT_EQ(Merge(v, bpe, scratch, word), MergeSlowly(v, word)) << seed << " " << word;
    }
  }
}

TEST(Bpe, EqualPairsMergeFromTheLeft) {
  Vocabulary v{{"a", "aa"}, {"a a"}, {}};
  Bpe::Scratch scratch;
  EXPECT_EQ(Merge(v, MakeBpe(v), scratch, "aaaaa"), (std::vector<std::string>{"aa", "aa", "a"}));
}

TEST(Bpe, ARepeatedMergeKeepsItsBestRank) {
  Vocabulary v{{"a", "b", "c", "ab", "bc"}, {"a b", "b c", "a b"}, {}};
  Bpe::Scratch scratch;
  EXPECT_EQ(Merge(v, MakeBpe(v), scratch, "abc"), (std::vector<std::string>{"ab", "c"}));
}

TEST(Bpe, AByteWithoutATokenIsLeftOutAndItsNeighboursMeet) {
  Vocabulary v{{"a", "b", "ab"}, {"a b"}, {}};
  const Bpe bpe = MakeBpe(v);
  Bpe::Scratch scratch;
  EXPECT_EQ(Merge(v, bpe, scratch, "a?b"), (std::vector<std::string>{"ab"}));
  EXPECT_TRUE(Merge(v, bpe, scratch, "???").empty());
  EXPECT_TRUE(Merge(v, bpe, scratch, "").empty());
  EXPECT_EQ(bpe.byte_token('?'), -1);
  EXPECT_EQ(bpe.byte_token('b'), 1);
}

TEST(Bpe, BadMergesAreNamed) {
  const Vocabulary v{{"a", "b", "ab"}, {}, {}};
  const struct {
    const char *merge, *message;
  } cases[] = {
      {"ab", "merge 1 'ab' is not two tokens with one space between them"},
      {" b", "merge 1 ' b' is not two tokens with one space between them"},
      {"a ", "merge 1 'a ' is not two tokens with one space between them"},
      {"a b b", "merge 1 'a b b' is not two tokens with one space between them"},
      {"", "merge 1 '' is not two tokens with one space between them"},
      {"a z", "merge 1 'a z' joins a token that is not in the vocabulary"},
      {"z a", "merge 1 'z a' joins a token that is not in the vocabulary"},
      {"b a", "merge 1 'b a' makes a token that is not in the vocabulary"},
  };
  for (const auto& c : cases) {
    const Result<Bpe> bpe = Bpe::Create(v.Ids(), std::vector<std::string_view>{"a b", c.merge});
    ASSERT_FALSE(bpe.ok()) << c.merge;
    EXPECT_EQ(bpe.status().code(), StatusCode::kCorrupt);
    EXPECT_EQ(bpe.status().message(), c.message);
  }
}

TEST(Bpe, AMegabyteOfOneWordDoesNotTakeQuadraticTime) {
  Vocabulary v{{"a", "aa", "aaaa"}, {"a a", "aa aa"}, {}};
  Bpe::Scratch scratch;
  EXPECT_EQ(Merge(v, MakeBpe(v), scratch, std::string(1 << 20, 'a')).size(), size_t{1} << 18);
}

}  // namespace
}  // namespace kvant
