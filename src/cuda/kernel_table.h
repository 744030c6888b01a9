// Every decode kernel, once: defined from this list (decode_kernels.h), declared, tested and
// metered by it. Plain C++, for hosts too.
//
// An iteration of a decode kernel's loop is one page a warp, with all that a page costs: folding of
// scales, softmax, rescaling. Nothing inside it loops.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/device_page.h"

// X(name, page, head_dim, heads, Way): Way<CodesOf<page>, head_dim, ...> serves up to `heads` query
// heads a KV head. 16 heads of 256 channels spill: two calls of 8 read the page twice instead.
#define KVANT_DECODE_KERNELS_OF_DIM(X, format, page, dim)             \
  X(kvant_decode_##format##_d##dim##_g1, page, dim, 1, CoreDecode, 1) \
  X(kvant_decode_##format##_d##dim##_g8, page, dim, 8, MmaDecode, 1)
#define KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, page, dim) \
  KVANT_DECODE_KERNELS_OF_DIM(X, format, page, dim)            \
  X(kvant_decode_##format##_d##dim##_g16, page, dim, 16, MmaDecode, 2)
#if defined(KVANT_HEAD_DIM_128_ONLY)  // enough for the meter of a further target
#define KVANT_DECODE_KERNELS_OF(X, format, page) \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, page, 128)
#define KVANT_COMMON_DECODE_KERNELS_OF(X, format, page) KVANT_DECODE_KERNELS_OF(X, format, page)
#elif defined(KVANT_SMALL_TILES)  // sanitized builds: whole V groups and a short one, odd tiles
#define KVANT_DECODE_KERNELS_OF(X, format, page)        \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, page, 64) \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, page, 80)
#define KVANT_COMMON_DECODE_KERNELS_OF(X, format, page) \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, page, 64)
#else
#define KVANT_DECODE_KERNELS_OF(X, format, page)         \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, page, 64)  \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, page, 80)  \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, page, 96)  \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, page, 128) \
  KVANT_DECODE_KERNELS_OF_DIM(X, format, page, 256)
// Of tq4, and of K and V of two widths: the commonest sizes.
#define KVANT_COMMON_DECODE_KERNELS_OF(X, format, page) \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, page, 64) \
  KVANT_WIDE_DECODE_KERNELS_OF_DIM(X, format, page, 128)
#endif
#define KVANT_DECODE_KERNELS(X)                               \
  KVANT_DECODE_KERNELS_OF(X, f16, kF16Page)                   \
  KVANT_DECODE_KERNELS_OF(X, int8, kInt8Page)                 \
  KVANT_DECODE_KERNELS_OF(X, int4, kInt4Page)                 \
  KVANT_DECODE_KERNELS_OF(X, int2, kInt2Page)                 \
  KVANT_DECODE_KERNELS_OF(X, fp8, kFp8Page)                   \
  KVANT_COMMON_DECODE_KERNELS_OF(X, tq4, kTq4Page)            \
  KVANT_COMMON_DECODE_KERNELS_OF(X, int8_int4, kInt8Int4Page) \
  KVANT_COMMON_DECODE_KERNELS_OF(X, int4_int2, kInt4Int2Page)

// X(name, page, head_dim): codes an f16 page.
#ifdef KVANT_HEAD_DIM_128_ONLY
#define KVANT_ENCODE_KERNELS_OF(X, format, page) X(kvant_encode_##format##_d128, page, 128)
#define KVANT_COMMON_ENCODE_KERNELS_OF(X, format, page) KVANT_ENCODE_KERNELS_OF(X, format, page)
#else
#define KVANT_ENCODE_KERNELS_OF(X, format, page) \
  X(kvant_encode_##format##_d64, page, 64)       \
  X(kvant_encode_##format##_d80, page, 80)       \
  X(kvant_encode_##format##_d96, page, 96)       \
  X(kvant_encode_##format##_d128, page, 128)     \
  X(kvant_encode_##format##_d256, page, 256)
#define KVANT_COMMON_ENCODE_KERNELS_OF(X, format, page) \
  X(kvant_encode_##format##_d64, page, 64)              \
  X(kvant_encode_##format##_d128, page, 128)
#endif
#define KVANT_ENCODE_KERNELS(X)                               \
  KVANT_ENCODE_KERNELS_OF(X, int8, kInt8Page)                 \
  KVANT_ENCODE_KERNELS_OF(X, int4, kInt4Page)                 \
  KVANT_ENCODE_KERNELS_OF(X, int2, kInt2Page)                 \
  KVANT_ENCODE_KERNELS_OF(X, fp8, kFp8Page)                   \
  KVANT_COMMON_ENCODE_KERNELS_OF(X, tq4, kTq4Page)            \
  KVANT_COMMON_ENCODE_KERNELS_OF(X, int8_int4, kInt8Int4Page) \
  KVANT_COMMON_ENCODE_KERNELS_OF(X, int4_int2, kInt4Int2Page)

namespace kvant::cuda {

struct KernelRow {
  const char* name;
  PageCode page;
  int head_dim;
  int heads;          // query heads a KV head, at most
  bool tensor_cores;  // mma m16n8k16
  // Of its loop, a lane and iteration: both sides' codes, and all bytes that global loads bring.
  int payload_bytes;
  int metadata_bytes;
};

// The format in a row's name, which is also that of its source: decode_<format>.cu.
constexpr std::string_view FormatOf(const KernelRow& row) {
  constexpr std::string_view kBegin = "kvant_decode_";
  const std::string_view rest = std::string_view(row.name).substr(kBegin.size());
  return rest.substr(0, rest.find("_d"));
}

// Metadata that a lane loads for a page. Without tensor cores it takes some of what many lanes need
// from its neighbours.
constexpr int KMetadataLoads(SideCode k, int head_dim, bool tensor_cores) {
  if (HasOffsets(k)) {
    return head_dim / 2 + (tensor_cores ? head_dim / 2 : (head_dim / 8 + 7) / 8 * 4);
  }
  return !IsByToken(k) ? 0 : tensor_cores ? 16 : 4;
}
constexpr int VMetadataLoads(SideCode v, int head_dim, bool tensor_cores) {
  if (HasOffsets(v)) return VGroups(head_dim) * (tensor_cores ? 2 * 32 : 32 + 4);
  return IsByToken(v) ? 32 : 0;
}

constexpr KernelRow MakeKernelRow(const char* name, PageCode page, int head_dim, int heads) {
  const bool tensor_cores = heads > 1;
  return {name,
          page,
          head_dim,
          heads,
          tensor_cores,
          LaneBytes(page.k, head_dim) + LaneBytes(page.v, head_dim),
          KMetadataLoads(page.k, head_dim, tensor_cores) +
              VMetadataLoads(page.v, head_dim, tensor_cores)};
}

inline constexpr KernelRow kDecodeKernels[] = {
#define KVANT_ROW(name, page, dim, heads, Way, count) MakeKernelRow(#name, page, dim, heads),
    KVANT_DECODE_KERNELS(KVANT_ROW)
#undef KVANT_ROW
};
// Besides, an iteration loads one 4-byte number of a page.

}  // namespace kvant::cuda
