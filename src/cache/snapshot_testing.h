// Snapshots in memory, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/xxh64.h"
#include "cache/snapshot.h"

namespace kvant::testing {

using Bytes = std::vector<std::byte>;

inline Bytes Saved(const Cache& cache, SequenceId seq, const SnapshotLabel& label = {}) {
  Bytes bytes;
  const Status status = cache.Save(seq, label, [&](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return bytes;
}

inline Result<SequenceId> RestoreInto(Cache& cache, std::span<const std::byte> bytes) {
  const Result<Snapshot> snapshot = ParseSnapshot(bytes);
  if (!snapshot.ok()) return snapshot.status();
  return cache.Restore(*snapshot);
}

// Of a snapshot's header, without its hash.
inline uint64_t HeaderBytes(const Bytes& snapshot) {
  uint64_t count = 0;
  std::memcpy(&count, snapshot.data() + 16, sizeof count);
  return count;
}

// The same with a header whose hash fits again.
inline Bytes Resealed(Bytes snapshot) {
  const uint64_t count = HeaderBytes(snapshot);
  const uint64_t hash = Xxh64(std::span<const std::byte>(snapshot).first(count));
  std::memcpy(snapshot.data() + count, &hash, sizeof hash);
  return snapshot;
}

}  // namespace kvant::testing
