#include "base/xxh64.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>
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

}  // namespace

Xxh64Stream::Xxh64Stream() : lanes_{kPrime1 + kPrime2, kPrime2, 0, uint64_t{0} - kPrime1} {}

// Stripes of 32 bytes in four independent lanes; what is left of the last one waits in rest_.
void Xxh64Stream::Add(std::span<const std::byte> bytes) {
  const auto take = [&](const std::byte* stripe) {
    for (int i = 0; i < 4; ++i) lanes_[i] = Round(lanes_[i], Read<uint64_t>(stripe + 8 * i));
  };
  const size_t waiting = total_bytes_ % kStripeBytes;
  total_bytes_ += bytes.size();
  if (waiting > 0) {
    const size_t count = std::min(kStripeBytes - waiting, bytes.size());
    std::copy_n(bytes.begin(), count, rest_.begin() + static_cast<std::ptrdiff_t>(waiting));
    bytes = bytes.subspan(count);
    if (waiting + count < kStripeBytes) return;
    take(rest_.data());
  }
  for (; bytes.size() >= kStripeBytes; bytes = bytes.subspan(kStripeBytes)) take(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

uint64_t Xxh64Stream::Hash() const {
  uint64_t hash = kPrime5;
  if (total_bytes_ >= kStripeBytes) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (uint64_t lane : lanes_) hash = MergeLane(hash, lane);
  }
  hash += total_bytes_;
  const std::byte* at = rest_.data();
  const std::byte* const end = at + total_bytes_ % kStripeBytes;
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

uint64_t Xxh64(std::span<const std::byte> bytes) {
  Xxh64Stream stream;
  stream.Add(bytes);
  return stream.Hash();
}

std::string HashText(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, hash);
  return text;
}

}  // namespace kvant
