// Dot<bits> of the levels that have vpdpbusd, from their DotBytes(I32 sum, I32 u8, I32 s8). A part
// of kernels_avx512.cc and kernels_avxvnni.cc, inside their anonymous namespaces.
//
// No #pragma once: a part of its includer, not a header of its own.

template <int kBits>
struct Codes {
  I32 bytes;
};

template <int kBits>
inline Codes<kBits> Prepare(I32 bytes) {
  return {bytes};
}

template <int kBits>
struct Dot {
  void Start(I32 first) { sum = first; }
  void Step(const Codes<kBits>& codes, I32 quad) { sum = DotBytes(sum, codes.bytes, quad); }
  I32 Finish() const { return sum; }

  I32 sum;
};
