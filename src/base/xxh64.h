// XXH64: a fast 64-bit hash that common tools print too, so that a file can be told apart and its
// damage be seen. Not cryptographic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kvant {

// Of bytes that come piece by piece, seed 0. The cuts between the pieces do not matter.
class Xxh64Stream {
 public:
  Xxh64Stream();
  void Add(std::span<const std::byte> bytes);
  uint64_t Hash() const;  // of all that was added; more may follow

 private:
  static constexpr size_t kStripeBytes = 32;

  uint64_t total_bytes_ = 0;
  uint64_t lanes_[4];
  std::array<std::byte, kStripeBytes> rest_;  // total_bytes_ % kStripeBytes of them
};

// Seed 0.
uint64_t Xxh64(std::span<const std::byte> bytes);

// As xxhsum prints it: 16 hexadecimal digits.
std::string HashText(uint64_t hash);

}  // namespace kvant
