#include "codec/rotation.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace kvant {
namespace {

// Orthonormal transform of `size` values, a power of two.
void Hadamard(float* x, int size) {
  for (int half = 1; half < size; half *= 2) {
    for (int first = 0; first < size; first += 2 * half) {
      for (int i = first; i < first + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  for (int i = 0; i < size; ++i) x[i] *= scale;
}

void HadamardBlocks(float* x, int head_dim) {
  for (int first = 0; first < head_dim;) {
    const int size = static_cast<int>(std::bit_floor(static_cast<unsigned>(head_dim - first)));
    Hadamard(x + first, size);
    first += size;
  }
}

}  // namespace

// A bit of a well-mixed counter (the finaliser of splitmix64).
float RotationSign(int channel) {
  uint64_t x = static_cast<uint64_t>(channel) + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (x ^ (x >> 31)) & 1 ? -1.0f : 1.0f;
}

void Rotate(const float* multiplier, int head_dim, float* x) {
  for (int i = 0; i < head_dim; ++i) x[i] *= multiplier[i];
  HadamardBlocks(x, head_dim);
}

void RotateBack(const float* multiplier, int head_dim, float* x) {
  HadamardBlocks(x, head_dim);
  for (int i = 0; i < head_dim; ++i) x[i] *= multiplier[i];
}

}  // namespace kvant
