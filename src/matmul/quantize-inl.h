// Rounding of activations, the bytes that activations.h describes. A part of kernels-inl.h.
//
// No #pragma once: a part of its includer, not a header of its own.

void QuantizeGroup(const float* x, ActivationGroup* out) {
  constexpr int kVectors = kActivationGroup / kLanes;
  I32 amax = SetI32(0);  // magnitudes compare as integers, infinities and NaN above all finite ones
  KVANT_UNROLL for (int v = 0; v < kVectors; ++v) {
    amax = MaxI32(amax, And(LoadI32(x + v * kLanes), SetI32(0x7fffffff)));
  }
  const int32_t amax_bits = HorizontalMax(amax);
  float scale;
  __builtin_memcpy(&scale, &amax_bits, sizeof(scale));
  scale /= 127.0f;
  if (amax_bits >= 0x7f800000 || scale == 0.0f) {
    const float shared = amax_bits >= 0x7f800000 ? __builtin_nanf("") : 0.0f;
    __builtin_memset(out, 0, sizeof(*out));
    out->scale = out->scaled_sum = shared;
    return;
  }
  I32 sums[kVectors];
  KVANT_UNROLL for (int v = 0; v < kVectors; ++v) {
    const I32 rounded = RoundI32(Div(LoadF32(x + v * kLanes), SetF32(scale)));
    sums[v] = MaxI32(MinI32(rounded, SetI32(127)), SetI32(-127));
    StoreI8(out->codes + v * kLanes, sums[v]);
  }
  I32 low = sums[0], high = sums[kVectors / 2];
  KVANT_UNROLL for (int v = 1; v < kVectors / 2; ++v) {
    low = AddI32(low, sums[v]);
    high = AddI32(high, sums[kVectors / 2 + v]);
  }
  out->scale = scale;
  out->low_sum = HorizontalSum(low);
  out->sum = out->low_sum + HorizontalSum(high);
  out->scaled_sum = scale * static_cast<float>(out->sum);
}

void Quantize(const float* x, int64_t cols, ActivationGroup* out) {
  int64_t first = 0;
  for (; first + kActivationGroup <= cols; first += kActivationGroup) {
    QuantizeGroup(x + first, out++);
  }
  if (first == cols) return;
  float tail[kActivationGroup] = {};
  __builtin_memcpy(tail, x + first, (cols - first) * sizeof(float));
  QuantizeGroup(tail, out);
}
