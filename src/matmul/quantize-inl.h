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
  float amax_value, scale;
  __builtin_memcpy(&amax_value, &amax_bits, sizeof(amax_value));
  amax_value /= 127.0f;
  constexpr int32_t kDropped = (1 << (23 - kScaleMantissaBits)) - 1;
  int32_t scale_bits;
  __builtin_memcpy(&scale_bits, &amax_value, sizeof(scale_bits));
  scale_bits = (scale_bits + kDropped) & ~kDropped;
  __builtin_memcpy(&scale, &scale_bits, sizeof(scale));
  constexpr int32_t kInfinity = 0x7f800000, kSmallestNormal = 0x00800000;
  if (amax_bits >= kInfinity || scale_bits < kSmallestNormal) {
    __builtin_memset(out, 0, sizeof(*out));
    if (amax_bits >= kInfinity) out->scale = out->scaled_sum = __builtin_nanf("");
    return;
  }
  const F32 inverse = SetF32(1.0f / scale);
  KVANT_UNROLL for (int v = 0; v < kVectors; ++v) {
    StoreI8(out->codes + v * kLanes, RoundI32(Mul(LoadF32(x + v * kLanes), inverse)));
  }
  out->scale = scale;
  out->low_sum = SumOfCodes(out->codes);
  out->sum = out->low_sum + SumOfCodes(out->codes + kActivationGroup / 2);
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
