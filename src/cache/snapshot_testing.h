// Snapshots in memory, for tests.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

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

}  // namespace kvant::testing
