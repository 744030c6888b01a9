#include "model/silu.h"

#include <bit>

namespace kvant {
namespace {

// exp(x) for |x| <= 87, branch-free so that the compiler can vectorise its caller's loop.
// x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) is its Taylor polynomial of degree 7, whose first
// dropped term is below 1e-8; 2^n is made of its bits.
inline float ExpInRange(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // 9 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the integer in low bits
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127u) << 23);
  return p * power;
}

// x clamped to +-87, where silu is below 1e-36. On the bits, which order as the numbers do:
// compilers that heed floating-point traps do not vectorise a comparison of floats.
inline float Clamp(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  constexpr int32_t kLimit = std::bit_cast<int32_t>(87.0f);
  const uint32_t clamped = static_cast<uint32_t>(magnitude < kLimit ? magnitude : kLimit);
  return std::bit_cast<float>((bits & 0x80000000u) | clamped);
}

}  // namespace

void SiluTimes(const float* up, int64_t n, float* gate) {
  for (int64_t i = 0; i < n; ++i) {
    // A NaN is clamped too, but it is also the numerator.
    gate[i] = gate[i] / (1.0f + ExpInRange(Clamp(-gate[i]))) * up[i];
  }
}

}  // namespace kvant
