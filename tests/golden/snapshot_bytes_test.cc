// A snapshot is a file format: of the same tokens it must stay the same bytes as long as its
// version is 1, or 2 of several widths. The tokens' values come from integer arithmetic
// (cache_testing.h).
#include <gtest/gtest.h>

#include "base/xxh64.h"
#include "cache/cache_testing.h"
#include "cache/snapshot_testing.h"
#include "cache/width_policy_for_test.h"

namespace kvant {
namespace {

struct Golden {
  const char *k, *v;
  int64_t bytes;
  uint64_t hash;
};

constexpr Golden kSnapshots[] = {
    {"int4:channel:g64:min", "int4:token:g64:min", 64076, 0x7f48e0a3c139ce9au},
    {"f16", "bf16", 66574, 0x2c276c1d835ad23fu},
    {"int2:channel:g32:min:prerope:out1", "q8_0", 67146, 0x846a434c5f9da1c0u},
};

void ExpectSaved(const KvSpec& spec, int64_t chunk, int64_t bytes, uint64_t hash) {
  auto cache = testing::MakeCache({2, 1, 32, 2}, spec);
  const SequenceId seq = testing::NewSequence(*cache);
  testing::ExtendTo(*cache, seq, testing::Tokens(200), 200, chunk);
  const std::vector<int32_t> tokens(200, 5);
  const std::vector<std::byte> state(12, std::byte{3});
  const testing::Bytes saved =
      testing::Saved(*cache, seq, {.model_hash = 77, .tokens = tokens, .state = state});
  EXPECT_EQ(std::ssize(saved), bytes) << FormatSpec(spec.k);
  EXPECT_EQ(Xxh64(saved), hash) << FormatSpec(spec.k);
}

TEST(SnapshotBytes, NeverMove) {
  for (const Golden& golden : kSnapshots) {
    ExpectSaved(testing::MakeSpec(golden.k, golden.v, 4, 64), 200, golden.bytes, golden.hash);
  }
}

// Version 2: a step lies inside one page, 8 tokens divide it.
TEST(SnapshotBytes, OfSeveralWidthsNeverMove) {
  ExpectSaved(MakeMixedSpec("16+8=int8:token/int8:token+4=int4:channel:g64:min/int4:token:min+"
                            "2=int2:token:min/int2:token:min",
                            HashedWidth, true),
              8, 100664, 0xab8aa9544b2caf7au);
}

}  // namespace
}  // namespace kvant
