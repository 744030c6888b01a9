// The bodies of elementwise.h, written so that the compiler vectorises them. Each per-ISA file
// includes this inside its own anonymous namespace and is compiled with that level's flags; no
// contraction or reordering is allowed anywhere, so the bits are the same.
//
// No #pragma once: a part of its includer, not a header of its own.

constexpr int kSums = 16;  // partial sums of squares: enough for one vector of every level

inline float SumOfSquares(const float* x, int64_t n) {
  float sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int lane = 0; lane < kSums; ++lane) sums[lane] += x[i + lane] * x[i + lane];
  }
  for (int lane = 0; i < n; ++i, ++lane) sums[lane] += x[i] * x[i];
  for (int half = kSums / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

inline uint32_t BitsOf(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

inline float FloatOf(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

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
  return p * FloatOf((BitsOf(shifted) + 127u) << 23);
}

// x clamped to +-87, where silu is below 1e-36. On the bits, which order as the numbers do:
// compilers that heed floating-point traps do not vectorise a comparison of floats.
inline float Clamp(float x) {
  const uint32_t bits = BitsOf(x);
  const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  constexpr int32_t kLimit = 0x42ae0000;  // 87.0f
  const uint32_t clamped = static_cast<uint32_t>(magnitude < kLimit ? magnitude : kLimit);
  return FloatOf((bits & 0x80000000u) | clamped);
}

void AddTo(const float* delta, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] += delta[i];
}

void RmsNorm(const float* x, const float* weight, int64_t n, float epsilon, float* out) {
  const float mean = SumOfSquares(x, n) / static_cast<float>(n);
  const float scale = 1.0f / __builtin_sqrtf(mean + epsilon);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void SiluTimes(const float* up, int64_t n, float* gate) {
  for (int64_t i = 0; i < n; ++i) {
    // A NaN is clamped too, but it is also the numerator.
    gate[i] = gate[i] / (1.0f + ExpInRange(Clamp(-gate[i]))) * up[i];
  }
}

void GeluTimes(const float* up, int64_t n, float* gate) {
  for (int64_t i = 0; i < n; ++i) {
    // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)).
    const float x = gate[i];
    const float minus_2u = -1.5957691216f * (x + 0.044715f * x * x * x);
    gate[i] = x / (1.0f + ExpInRange(Clamp(minus_2u))) * up[i];
  }
}
