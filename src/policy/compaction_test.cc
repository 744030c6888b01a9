// Places of what is kept, serial and parallel, and rows that move in place.
#include "policy/compaction.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace kvant {
namespace {

constexpr int32_t kNone = kDroppedItem;

TEST(KeepDestinations, TheWorkedExample) {
  const std::vector<uint8_t> keep = {1, 0, 1, 1, 0, 1};
  std::vector<int32_t> destination(6);
  EXPECT_EQ(KeepDestinations(keep, destination), 4);
  EXPECT_EQ(destination, (std::vector<int32_t>{0, kNone, 1, 2, kNone, 3}));
}

TEST(KeepDestinations, BlocksAndThreadsDoNotMatter) {
  const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(3).value();
  std::mt19937 random(2);
  for (const size_t items : {0, 1, 2, 63, 64, 65, 500}) {
    std::vector<uint8_t> keep(items);
    for (uint8_t& k : keep) k = random() % 3 == 0 ? 0 : static_cast<uint8_t>(random() % 5);
    std::vector<int32_t> serial(items);
    const int64_t kept = KeepDestinations(keep, serial);
    for (const int64_t block : {1, 7, 64, 1000}) {
      std::vector<int32_t> parallel(items, 99);
      EXPECT_EQ(KeepDestinations(keep, block, *pool, parallel), kept);
      EXPECT_EQ(parallel, serial) << items << " in blocks of " << block;
    }
  }
}

TEST(CompactRows, MovesWhatIsKeptToItsDestination) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    const size_t items = random() % 40;
    constexpr size_t kRow = 5;
    std::vector<uint8_t> keep(items);
    for (uint8_t& k : keep) k = random() % 2 == 0;
    std::vector<std::byte> rows(items * kRow);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::byte>(i);
    const std::vector<std::byte> before = rows;
    std::vector<int32_t> destination(items);
    const int64_t kept = KeepDestinations(keep, destination);
    EXPECT_EQ(CompactRows(keep, kRow, rows.data()), kept);
    for (size_t i = 0; i < items; ++i) {
      if (destination[i] == kNone) continue;
      ASSERT_LE(static_cast<size_t>(destination[i]), i);
      EXPECT_EQ(
          std::memcmp(&rows[static_cast<size_t>(destination[i]) * kRow], &before[i * kRow], kRow),
          0);
    }
  }
}

}  // namespace
}  // namespace kvant
