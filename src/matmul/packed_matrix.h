// A weight matrix [rows][cols] in the layout that the matmul kernels stream.
//
// Two kinds share one type:
//   grouped  small integers with a scale (and maybe an offset) per group of inputs of one row:
//            value = scale * (code - zero) + offset. Codes are held in 4 bits or in 8.
//   float    plain values, held as f16 or bf16 when every value is exact there, otherwise as f32.
//
// Output rows lie in blocks of kRowBlock lanes, the last block padded with zeros. A block is one
// straight run of memory; its bytes are the same on every host and ISA:
//   grouped  for each group of inputs, ascending: scales [16], offsets [16] (only with offsets),
//            then units of 64 bytes. A unit holds a quad of inputs for 16 rows, [16 rows][4
//            inputs]; 4-bit units hold two quads, the earlier one in the low nibbles. Scales and
//            offsets are f16 when all of the matrix are exact there, otherwise f32.
//   float    for each input column, ascending: [16 rows].
#pragma once

#include <cstdint>
#include <functional>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kvant/status.h"

namespace kvant {

inline constexpr int kRowBlock = 16;   // output rows that a kernel computes together
inline constexpr int kUnitBytes = 64;  // one aligned load of codes

// What the integers of a grouped matrix mean.
struct GroupedSpec {
  int bits = 0;             // 1..8: codes are below 2^bits. At most 4 are stored in 4, others in 8
  int group = 32;           // inputs that share a scale: 16 or 32
  int zero = 0;             // 0..255, subtracted from every code; must be 0 with offsets
  bool has_offset = false;  // whether every group has an offset of its own
};

// Where a row source writes one row. Every entry must be written; offsets is null when the
// matrix has none.
struct GroupedRow {
  uint8_t* codes;  // [cols]
  float* scales;   // [cols / group]
  float* offsets;  // [cols / group] or null
};

// Fill one row. A failing Status ends the creation and is returned from it. May be asked for a row
// more than once and, when Create was given a pool, from several threads for different rows.
using GroupedRowSource = std::function<Status(int64_t row, const GroupedRow& out)>;
using FloatRowSource = std::function<Status(int64_t row, float* out /* [cols] */)>;

enum class FloatStorage : uint8_t { kF32, kF16, kBf16 };

// Owns its bytes; movable. Immutable once created, so any number of threads may read it.
class PackedMatrix {
 public:
  // An empty matrix, to be assigned to.
  PackedMatrix() = default;

  // kInvalidArgument: a size below 1, a spec out of range, cols not a multiple of the group.
  // kCorrupt: a code that does not fit the bits, or a scale or offset that is not finite.
  // kOutOfMemory. pool may be null.
  static Result<PackedMatrix> CreateGrouped(int64_t rows, int64_t cols, const GroupedSpec& spec,
                                            const GroupedRowSource& source,
                                            ThreadPool* pool = nullptr);

  // The same errors; any cols >= 1. kCorrupt: a value that is not finite.
  static Result<PackedMatrix> CreateFloat(int64_t rows, int64_t cols, const FloatRowSource& source,
                                          ThreadPool* pool = nullptr);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  bool is_grouped() const { return grouped_; }

  // REQUIRES: is_grouped().
  const GroupedSpec& spec() const { return spec_; }
  // Bits that a stored code takes: 4 or 8.
  int stored_bits() const { return spec_.bits <= 4 ? 4 : 8; }
  // Whether scales and offsets are stored as f16.
  bool half_scales() const { return half_scales_; }

  // REQUIRES: !is_grouped().
  FloatStorage float_storage() const { return float_storage_; }

  int64_t blocks() const { return (rows_ + kRowBlock - 1) / kRowBlock; }
  int64_t block_bytes() const { return block_bytes_; }
  const uint8_t* block(int64_t index) const { return bytes_.as<uint8_t>() + index * block_bytes_; }

  // Everything held for the weights: codes, scales, offsets, padding rows.
  int64_t packed_bytes() const { return blocks() * block_bytes_; }

  // The values of one row: fma(scale, code - zero, offset), the numbers that matmul computes with
  // when activations stay float. REQUIRES: 0 <= row < rows().
  void DecodeRow(int64_t row, float* out /* [cols] */) const;

 private:
  // Packs every row; *exact says whether the present choice of storage held all values.
  Status PackGroupedRows(const GroupedRowSource& source, ThreadPool* pool, bool* exact);
  Status PackFloatRows(const FloatRowSource& source, ThreadPool* pool, bool* exact);
  Status Allocate();

  int64_t rows_ = 0, cols_ = 0;
  int64_t block_bytes_ = 0;
  GroupedSpec spec_;
  bool grouped_ = false;
  bool half_scales_ = false;
  FloatStorage float_storage_ = FloatStorage::kF32;
  AlignedBuffer bytes_;
};

}  // namespace kvant
