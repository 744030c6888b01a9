// The reference: every other level must give these bits. Written to be read, from the layout in
// packed_matrix.h and the arithmetic in matmul.h.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float16.h"
#include "matmul/kernels.h"

namespace kvant {
namespace {

float Number(const uint8_t* plane, bool half, int lane) {
  if (half) {
    uint16_t bits;
    std::memcpy(&bits, plane + 2 * lane, sizeof(bits));
    return F16ToF32(bits);
  }
  float value;
  std::memcpy(&value, plane + 4 * lane, sizeof(value));
  return value;
}

// One group of one row block, as packed_matrix.h lays it out.
struct Group {
  Group(const MatMulJob& job, const uint8_t* block, int64_t index)
      : inputs(job.group16 ? 16 : 32), quads_per_unit(job.four_bits ? 2 : 1) {
    const int plane_bytes = kRowBlock * (job.half_scales ? 2 : 4);
    const int planes = job.has_offset ? 2 : 1;
    const int code_bytes = inputs / 4 / quads_per_unit * kUnitBytes;
    scales = block + index * (planes * plane_bytes + code_bytes);
    offsets = scales + plane_bytes;
    codes = scales + planes * plane_bytes;
  }

  // code(lane, input, value) of every code.
  template <typename Code>
  void ForCodes(const Code& code) const {
    const int mask = quads_per_unit == 2 ? 15 : 255;
    for (int quad = 0; quad < inputs / 4; ++quad) {
      const uint8_t* unit = codes + quad / quads_per_unit * kUnitBytes;
      const int shift = quad % quads_per_unit * 4;
      for (int lane = 0; lane < kRowBlock; ++lane) {
        for (int j = 0; j < 4; ++j) {
          code(lane, quad * 4 + j, (unit[lane * 4 + j] >> shift) & mask);
        }
      }
    }
  }

  int inputs, quads_per_unit;
  const uint8_t *scales, *offsets, *codes;
};

void Quantize(const float* x, int64_t cols, ActivationGroup* out) {
  for (int64_t first = 0; first < cols; first += kActivationGroup, ++out) {
    float values[kActivationGroup] = {};
    const int64_t count = cols - first < kActivationGroup ? cols - first : kActivationGroup;
    std::memcpy(values, x + first, count * sizeof(float));
    // Magnitudes compare as integers, with infinities and NaN above all finite ones.
    uint32_t amax_bits = 0;
    for (const float v : values) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(v) & 0x7fffffffu;
      if (magnitude > amax_bits) amax_bits = magnitude;
    }
    std::memset(out, 0, sizeof(*out));
    if (amax_bits >= 0x7f800000u) {
      out->scale = out->scaled_sum = std::bit_cast<float>(0x7fc00000u);
      continue;
    }
    constexpr uint32_t kDropped = (1u << (23 - kScaleMantissaBits)) - 1;
    const uint32_t exact_bits = std::bit_cast<uint32_t>(std::bit_cast<float>(amax_bits) / 127.0f);
    const float scale = std::bit_cast<float>((exact_bits + kDropped) & ~kDropped);
    if (scale < std::numeric_limits<float>::min()) continue;
    out->scale = scale;
    const float inverse = 1.0f / scale;
    for (int i = 0; i < kActivationGroup; ++i) {
      const int code = static_cast<int>(std::lrint(values[i] * inverse));
      out->codes[i] = static_cast<int8_t>(code);
      out->sum += code;
      if (i < 16) out->low_sum += code;
    }
    out->scaled_sum = scale * static_cast<float>(out->sum);
  }
}

void Int8Block(const MatMulJob& job, const uint8_t* block, int64_t token, float* acc) {
  const ActivationGroup* a = job.groups + token * job.groups_stride;
  const int inputs = job.group16 ? 16 : 32;
  for (int64_t g = 0; g * inputs < job.cols; ++g) {
    const Group group(job, block, g);
    const ActivationGroup& activation = a[g * inputs / kActivationGroup];
    const int8_t* codes = activation.codes + g * inputs % kActivationGroup;
    int32_t sum = 0, dot[kRowBlock] = {};
    for (int i = 0; i < inputs; ++i) sum += codes[i];
    group.ForCodes([&](int lane, int i, int code) { dot[lane] += code * codes[i]; });
    for (int lane = 0; lane < kRowBlock; ++lane) {
      const float scale = Number(group.scales, job.half_scales, lane) * activation.scale;
      acc[lane] = std::fma(scale, static_cast<float>(dot[lane] - job.zero * sum), acc[lane]);
      if (!job.has_offset) continue;
      const float offset = Number(group.offsets, job.half_scales, lane);
      acc[lane] = std::fma(offset, activation.scale * static_cast<float>(sum), acc[lane]);
    }
  }
}

void FloatBlock(const MatMulJob& job, const uint8_t* block, int64_t token, float* out) {
  const float* x = job.values + token * job.values_stride;
  const int inputs = job.group16 ? 16 : 32;
  float acc[4][kRowBlock] = {};
  for (int64_t g = 0; g * inputs < job.cols; ++g, x += inputs) {
    const Group group(job, block, g);
    float scales[kRowBlock], offsets[kRowBlock] = {};
    for (int lane = 0; lane < kRowBlock; ++lane) {
      scales[lane] = Number(group.scales, job.half_scales, lane);
      if (job.has_offset) offsets[lane] = Number(group.offsets, job.half_scales, lane);
    }
    group.ForCodes([&](int lane, int i, int code) {
      const float w = std::fma(scales[lane], static_cast<float>(code - job.zero), offsets[lane]);
      acc[i % 4][lane] = std::fma(w, x[i], acc[i % 4][lane]);
    });
  }
  for (int lane = 0; lane < kRowBlock; ++lane) {
    out[lane] = (acc[0][lane] + acc[1][lane]) + (acc[2][lane] + acc[3][lane]);
  }
}

float PlainWeight(FloatStorage storage, const uint8_t* block, int64_t at) {
  switch (storage) {
    case FloatStorage::kF32:
      return reinterpret_cast<const float*>(block)[at];
    case FloatStorage::kF16:
      return F16ToF32(reinterpret_cast<const uint16_t*>(block)[at]);
    case FloatStorage::kBf16:
      return Bf16ToF32(reinterpret_cast<const uint16_t*>(block)[at]);
  }
  return 0.0f;
}

void PlainBlock(const MatMulJob& job, const uint8_t* block, int64_t token, float* out) {
  const float* x = job.values + token * job.values_stride;
  float acc[4][kRowBlock] = {};
  for (int64_t c = 0; c < job.cols; ++c) {
    for (int lane = 0; lane < kRowBlock; ++lane) {
      const float w = PlainWeight(job.storage, block, c * kRowBlock + lane);
      acc[c % 4][lane] = std::fma(w, x[c], acc[c % 4][lane]);
    }
  }
  for (int lane = 0; lane < kRowBlock; ++lane) {
    out[lane] = (acc[0][lane] + acc[1][lane]) + (acc[2][lane] + acc[3][lane]);
  }
}

// kBlock computes 16 outputs of one token; rows beyond the matrix are dropped.
template <void (*kBlock)(const MatMulJob&, const uint8_t*, int64_t, float*)>
void ForBlocks(const MatMulJob& job) {
  const uint8_t* block = job.weights;
  for (int64_t row = 0; row < job.rows; row += kRowBlock, block += job.block_bytes) {
    const int64_t rows = job.rows - row < kRowBlock ? job.rows - row : kRowBlock;
    for (int64_t t = 0; t < job.tokens; ++t) {
      float out[kRowBlock] = {};
      kBlock(job, block, t, out);
      std::memcpy(job.out + t * job.out_stride + row, out, rows * sizeof(float));
    }
  }
}

}  // namespace

const MatMulKernels kMatMulScalar = {Quantize, ForBlocks<Int8Block>, ForBlocks<FloatBlock>,
                                     ForBlocks<PlainBlock>};

}  // namespace kvant
