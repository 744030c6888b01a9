// Every decode kernel, once: defined from this list (decode_kernels.h), declared, tested and
// metered by it. Plain C++, for hosts too.
//
// An iteration of a decode kernel's loop is one page a warp, with all that a page costs: folding of
// scales, softmax, rescaling. Nothing inside it loops.
#pragma once

#include <cstdint>

#include "cuda/device_page.h"

// X(name, bits, head_dim, heads, Way): Way<CodesOf<bits>, head_dim, ...> serves up to `heads` query
// heads a KV head. 16 heads of 256 channels spill: two calls of 8 read the page twice instead.
#define KVANT_DECODE_KERNELS_OF_DIM(X, format, bits, dim)             \
  X(kvant_decode_##format##_d##dim##_g1, bits, dim, 1, CoreDecode, 1) \
  X(kvant_decode_##format##_d##dim##_g8, bits, dim, 8, MmaDecode, 1)
#define KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, bits, dim) \
  KVANT_DECODE_KERNELS_OF_DIM(X, format, bits, dim)            \
  X(kvant_decode_##format##_d##dim##_g16, bits, dim, 16, MmaDecode, 2)
#if defined(KVANT_HEAD_DIM_128_ONLY)  // enough for the meter of a further target
#define KVANT_DECODE_KERNELS_OF(X, format, bits) \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, bits, 128)
#elif defined(KVANT_SMALL_TILES)  // sanitized builds: whole V groups and a short one, odd tiles
#define KVANT_DECODE_KERNELS_OF(X, format, bits)        \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, bits, 64) \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, bits, 80)
#else
#define KVANT_DECODE_KERNELS_OF(X, format, bits)         \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, bits, 64)  \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, bits, 80)  \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, bits, 96)  \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, bits, 128) \
  KVANT_DECODE_KERNELS_OF_DIM(X, format, bits, 256)
#endif
#define KVANT_DECODE_KERNELS(X)       \
  KVANT_DECODE_KERNELS_OF(X, f16, 16) \
  KVANT_DECODE_KERNELS_OF(X, int8, 8) \
  KVANT_DECODE_KERNELS_OF(X, int4, 4) \
  KVANT_DECODE_KERNELS_OF(X, int2, 2)

// X(name, bits, head_dim): codes an f16 page.
#ifdef KVANT_HEAD_DIM_128_ONLY
#define KVANT_ENCODE_KERNELS_OF(X, format, bits) X(kvant_encode_##format##_d128, bits, 128)
#else
#define KVANT_ENCODE_KERNELS_OF(X, format, bits) \
  X(kvant_encode_##format##_d64, bits, 64)       \
  X(kvant_encode_##format##_d80, bits, 80)       \
  X(kvant_encode_##format##_d96, bits, 96)       \
  X(kvant_encode_##format##_d128, bits, 128)     \
  X(kvant_encode_##format##_d256, bits, 256)
#endif
#define KVANT_ENCODE_KERNELS(X)       \
  KVANT_ENCODE_KERNELS_OF(X, int8, 8) \
  KVANT_ENCODE_KERNELS_OF(X, int4, 4) \
  KVANT_ENCODE_KERNELS_OF(X, int2, 2)

namespace kvant::cuda {

struct KernelRow {
  const char* name;
  int bits, head_dim;
  int heads;          // query heads a KV head, at most
  bool tensor_cores;  // mma m16n8k16
  // Of its loop, a lane and iteration: both sides' codes, and all bytes that global loads bring.
  int payload_bytes;
  int metadata_bytes;
};

constexpr KernelRow MakeKernelRow(const char* name, int bits, int head_dim, int heads) {
  const int per_group = heads > 1 ? 2 * 32 : 32 + 4;  // V: scales and offsets; or two offsets
  const int k_offsets = heads > 1 ? head_dim / 2 : (head_dim / 8 + 7) / 8 * 4;
  return {name,
          bits,
          head_dim,
          heads,
          heads > 1,
          2 * LaneBytes(bits, head_dim),
          bits == 16 ? 0 : head_dim / 2 + k_offsets + VGroups(head_dim) * per_group};
}

inline constexpr KernelRow kDecodeKernels[] = {
#define KVANT_ROW(name, bits, dim, heads, Way, count) MakeKernelRow(#name, bits, dim, heads),
    KVANT_DECODE_KERNELS(KVANT_ROW)
#undef KVANT_ROW
};
// Besides, an iteration loads one 4-byte number of a page.

}  // namespace kvant::cuda
