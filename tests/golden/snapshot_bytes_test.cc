// A snapshot is a file format: of the same tokens it must stay the same bytes as long as its
// version is 1. The tokens' values come from integer arithmetic (cache_testing.h).
#include <gtest/gtest.h>

#include "base/xxh64.h"
#include "cache/cache_testing.h"
#include "cache/snapshot.h"

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

TEST(SnapshotBytes, NeverMove) {
  constexpr KvGeometry kGeometry{2, 1, 32, 2};
  for (const Golden& golden : kSnapshots) {
    auto cache = testing::MakeCache(kGeometry, testing::MakeSpec(golden.k, golden.v, 4, 64));
    const SequenceId seq = testing::NewSequence(*cache);
    testing::ExtendTo(*cache, seq, testing::Tokens(200), 200, 200);
    const std::vector<int32_t> tokens(200, 5);
    const std::vector<std::byte> state(12, std::byte{3});
    std::vector<std::byte> bytes;
    const Status status = cache->Save(seq, {.model_hash = 77, .tokens = tokens, .state = state},
                                      [&](std::span<const std::byte> part) {
                                        bytes.insert(bytes.end(), part.begin(), part.end());
                                        return Status::Ok();
                                      });
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(std::ssize(bytes), golden.bytes) << golden.k;
    EXPECT_EQ(Xxh64(bytes), golden.hash) << golden.k;
  }
}

}  // namespace
}  // namespace kvant
