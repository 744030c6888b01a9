#include "base/xxh64.h"

#include <bit>
#include <cstring>

namespace kvant {
namespace {

// The constants of the published algorithm.
constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5u;

template <typename T>
uint64_t Read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint64_t Round(uint64_t accumulator, uint64_t lane) {
  return std::rotl(accumulator + lane * kPrime2, 31) * kPrime1;
}

uint64_t MergeLane(uint64_t hash, uint64_t lane) {
  return (hash ^ Round(0, lane)) * kPrime1 + kPrime4;
}

// Stripes of 32 bytes in four independent lanes; `at` is left behind the last whole stripe.
uint64_t HashStripes(const std::byte*& at, const std::byte* end) {
  uint64_t lanes[4] = {kPrime1 + kPrime2, kPrime2, 0, uint64_t{0} - kPrime1};
  for (; end - at >= 32; at += 32) {
    for (int i = 0; i < 4; ++i) lanes[i] = Round(lanes[i], Read<uint64_t>(at + 8 * i));
  }
  uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
                  std::rotl(lanes[3], 18);
  for (uint64_t lane : lanes) hash = MergeLane(hash, lane);
  return hash;
}

}  // namespace

uint64_t Xxh64(std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  uint64_t hash = bytes.size() >= 32 ? HashStripes(at, end) : kPrime5;
  hash += bytes.size();
  for (; end - at >= 8; at += 8) {
    hash = std::rotl(hash ^ Round(0, Read<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (end - at >= 4) {
    hash = std::rotl(hash ^ (Read<uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at < end; ++at) hash = std::rotl(hash ^ (Read<uint8_t>(at) * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace kvant
