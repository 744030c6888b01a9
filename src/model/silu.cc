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

}  // namespace

void SiluTimes(const float* up, int64_t n, float* gate) {
  for (int64_t i = 0; i < n; ++i) {
    float x = -gate[i];
    x = x > 87.0f ? 87.0f : x;  // silu is then below 1e-36
    x = x < -87.0f ? -87.0f : x;
    gate[i] = gate[i] / (1.0f + ExpInRange(x)) * up[i];
  }
}

}  // namespace kvant
