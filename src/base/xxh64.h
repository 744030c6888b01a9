// XXH64: a fast 64-bit hash that common tools print too, so that a model file can be told apart.
// Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvant {

// Seed 0.
uint64_t Xxh64(std::span<const std::byte> bytes);

}  // namespace kvant
