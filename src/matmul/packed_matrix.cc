#include "matmul/packed_matrix.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "base/float16.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

bool ExactInF16(float value) { return F16ToF32(F32ToF16(value)) == value; }
bool ExactInBf16(float value) { return Bf16ToF32(F32ToBf16(value)) == value; }

// The failure of the lowest row wins, so that the message does not depend on threads.
class FirstFailure {
 public:
  void Report(int64_t row, Status status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (row < row_) {
      row_ = row;
      status_ = std::move(status);
    }
  }
  // After all threads have met.
  const Status& status() const { return status_; }

 private:
  std::mutex mutex_;
  int64_t row_ = INT64_MAX;
  Status status_;
};

template <typename Body>
void ForBlocks(ThreadPool* pool, int64_t blocks, const Body& body) {
  if (pool == nullptr) {
    body(int64_t{0}, blocks);
  } else {
    pool->ParallelFor(blocks, body);
  }
}

Status CheckSize(int64_t rows, int64_t cols) {
  constexpr int64_t kMax = int64_t{1} << 30;
  if (rows < 1 || cols < 1 || rows > kMax || cols > kMax) {
    return Status::InvalidArgument("a weight matrix of " + std::to_string(rows) + " rows and " +
                                   std::to_string(cols) + " columns is outside 1..2^30");
  }
  return Status::Ok();
}

Status CheckSpec(int64_t cols, const GroupedSpec& spec) {
  if (spec.bits < 1 || spec.bits > 8) {
    return Status::InvalidArgument("weight codes of " + std::to_string(spec.bits) +
                                   " bits are outside 1..8");
  }
  if (spec.group != 16 && spec.group != 32) {
    return Status::InvalidArgument("weight groups of " + std::to_string(spec.group) +
                                   " inputs are neither 16 nor 32");
  }
  if (spec.zero < 0 || spec.zero > 255) {
    return Status::InvalidArgument("weight zero " + std::to_string(spec.zero) +
                                   " is outside 0..255");
  }
  if (spec.has_offset && spec.zero != 0) {
    return Status::InvalidArgument("a weight matrix with offsets has zero " +
                                   std::to_string(spec.zero) + " where only 0 is possible");
  }
  if (cols % spec.group != 0) {
    return Status::InvalidArgument("a weight row of " + std::to_string(cols) +
                                   " inputs is not whole groups of " + std::to_string(spec.group));
  }
  return Status::Ok();
}

Status CheckFinite(const float* values, int64_t count, int64_t row, const char* what) {
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) {
      return Status::Corrupt("weight row " + std::to_string(row) + " has a " + what +
                             " that is not finite, number " + std::to_string(i));
    }
  }
  return Status::Ok();
}

// A weight row on its way from the source into the layout.
struct RowScratch {
  AlignedBuffer floats, codes;
  GroupedRow row = {};

  Status Allocate(int64_t cols, const GroupedSpec& spec) {
    const int64_t groups = cols / spec.group;
    KVANT_ASSIGN_OR_RETURN(floats, AlignedBuffer::Create(sizeof(float) * 2 * groups));
    KVANT_ASSIGN_OR_RETURN(codes, AlignedBuffer::Create(cols));
    row.codes = codes.as<uint8_t>();
    row.scales = floats.as<float>();
    row.offsets = spec.has_offset ? row.scales + groups : nullptr;
    return Status::Ok();
  }
};

Status CheckRow(int64_t row_index, int64_t cols, const GroupedSpec& spec, const GroupedRow& row) {
  const int64_t groups = cols / spec.group;
  KVANT_RETURN_IF_ERROR(CheckFinite(row.scales, groups, row_index, "scale"));
  if (spec.has_offset) {
    KVANT_RETURN_IF_ERROR(CheckFinite(row.offsets, groups, row_index, "offset"));
  }
  for (int64_t i = 0; i < cols; ++i) {
    if (row.codes[i] >> spec.bits != 0) {
      return Status::Corrupt("weight row " + std::to_string(row_index) + " has code " +
                             std::to_string(row.codes[i]) + " at input " + std::to_string(i) +
                             ", more than " + std::to_string(spec.bits) + " bits");
    }
  }
  return Status::Ok();
}

void StoreScale(float value, bool half, int lane, uint8_t* dst) {
  if (half) {
    const uint16_t bits = F32ToF16(value);
    std::memcpy(dst + lane * sizeof(bits), &bits, sizeof(bits));
  } else {
    std::memcpy(dst + lane * sizeof(value), &value, sizeof(value));
  }
}

float LoadScale(const uint8_t* src, bool half, int lane) {
  if (half) {
    uint16_t bits;
    std::memcpy(&bits, src + lane * sizeof(bits), sizeof(bits));
    return F16ToF32(bits);
  }
  float value;
  std::memcpy(&value, src + lane * sizeof(value), sizeof(value));
  return value;
}

// Where things of one group stand within its bytes.
struct GroupShape {
  GroupShape(const GroupedSpec& spec, bool half_scales)
      : half(half_scales),
        four(spec.bits <= 4),
        group(spec.group),
        plane_bytes(kRowBlock * (half_scales ? 2 : 4)),
        codes_at(plane_bytes * (spec.has_offset ? 2 : 1)),
        bytes(codes_at + kRowBlock * spec.group / (four ? 2 : 1)) {}

  // Byte of input i in a lane's row; in 4-bit units every second quad is in the high nibbles.
  int64_t CodeAt(int i, int lane) const {
    const int unit = four ? i / 8 : i / 4;
    return codes_at + unit * kUnitBytes + lane * 4 + i % 4;
  }
  bool HighNibble(int i) const { return four && i % 8 >= 4; }

  bool half, four;
  int group;
  int64_t plane_bytes, codes_at, bytes;
};

// dst is the block, zeroed before its first row.
void StoreRow(const GroupedRow& row, int64_t groups, const GroupShape& shape, int lane,
              bool has_offset, uint8_t* dst) {
  for (int64_t g = 0; g < groups; ++g, dst += shape.bytes) {
    StoreScale(row.scales[g], shape.half, lane, dst);
    if (has_offset) StoreScale(row.offsets[g], shape.half, lane, dst + shape.plane_bytes);
    const uint8_t* codes = row.codes + g * shape.group;
    for (int i = 0; i < shape.group; ++i) {
      uint8_t& byte = dst[shape.CodeAt(i, lane)];
      byte = static_cast<uint8_t>(shape.HighNibble(i) ? byte | codes[i] << 4 : codes[i]);
    }
  }
}

}  // namespace

Result<PackedMatrix> PackedMatrix::CreateGrouped(int64_t rows, int64_t cols,
                                                 const GroupedSpec& spec,
                                                 const GroupedRowSource& source, ThreadPool* pool) {
  KVANT_RETURN_IF_ERROR(IsaStatus());
  KVANT_RETURN_IF_ERROR(CheckSize(rows, cols));
  KVANT_RETURN_IF_ERROR(CheckSpec(cols, spec));
  PackedMatrix m;
  m.rows_ = rows;
  m.cols_ = cols;
  m.spec_ = spec;
  m.grouped_ = true;
  for (const bool half : {true, false}) {
    m.half_scales_ = half;
    m.block_bytes_ = GroupShape(spec, half).bytes * (cols / spec.group);
    bool exact = true;
    KVANT_RETURN_IF_ERROR(m.Allocate());
    KVANT_RETURN_IF_ERROR(m.PackGroupedRows(source, pool, &exact));
    if (exact) break;
  }
  return m;
}

Status PackedMatrix::PackGroupedRows(const GroupedRowSource& source, ThreadPool* pool,
                                     bool* exact) {
  const GroupShape shape(spec_, half_scales_);
  const int64_t groups = cols_ / spec_.group;
  FirstFailure failure;
  std::atomic<bool> inexact{false};
  ForBlocks(pool, blocks(), [&](int64_t begin, int64_t end) {
    RowScratch scratch;
    if (Status s = scratch.Allocate(cols_, spec_); !s.ok()) {
      return failure.Report(begin * kRowBlock, std::move(s));
    }
    for (int64_t row = begin * kRowBlock; row < end * kRowBlock; ++row) {
      uint8_t* dst = bytes_.as<uint8_t>() + row / kRowBlock * block_bytes_;
      if (row % kRowBlock == 0) std::memset(dst, 0, block_bytes_);
      if (row >= rows_) continue;
      Status s = source(row, scratch.row);
      if (s.ok()) s = CheckRow(row, cols_, spec_, scratch.row);
      if (!s.ok()) return failure.Report(row, std::move(s));
      const int64_t numbers = spec_.has_offset ? 2 * groups : groups;
      for (int64_t i = 0; half_scales_ && i < numbers; ++i) {
        if (!ExactInF16(scratch.row.scales[i])) inexact = true;
      }
      if (inexact) return;
      StoreRow(scratch.row, groups, shape, static_cast<int>(row % kRowBlock), spec_.has_offset,
               dst);
    }
  });
  *exact = !inexact;
  return failure.status();
}

Result<PackedMatrix> PackedMatrix::CreateFloat(int64_t rows, int64_t cols,
                                               const FloatRowSource& source, ThreadPool* pool) {
  KVANT_RETURN_IF_ERROR(IsaStatus());
  KVANT_RETURN_IF_ERROR(CheckSize(rows, cols));
  PackedMatrix m;
  m.rows_ = rows;
  m.cols_ = cols;
  for (const FloatStorage storage : {FloatStorage::kF16, FloatStorage::kBf16, FloatStorage::kF32}) {
    m.float_storage_ = storage;
    m.block_bytes_ = cols * kRowBlock * (storage == FloatStorage::kF32 ? 4 : 2);
    bool exact = true;
    KVANT_RETURN_IF_ERROR(m.Allocate());
    KVANT_RETURN_IF_ERROR(m.PackFloatRows(source, pool, &exact));
    if (exact) break;
  }
  return m;
}

Status PackedMatrix::PackFloatRows(const FloatRowSource& source, ThreadPool* pool, bool* exact) {
  FirstFailure failure;
  std::atomic<bool> inexact{false};
  ForBlocks(pool, blocks(), [&](int64_t begin, int64_t end) {
    Result<AlignedBuffer> scratch = AlignedBuffer::Create(sizeof(float) * cols_);
    if (!scratch.ok()) return failure.Report(begin * kRowBlock, scratch.status());
    float* values = scratch->as<float>();
    for (int64_t row = begin * kRowBlock; row < end * kRowBlock; ++row) {
      uint8_t* dst = bytes_.as<uint8_t>() + row / kRowBlock * block_bytes_;
      if (row % kRowBlock == 0) std::memset(dst, 0, block_bytes_);
      if (row >= rows_) continue;
      Status s = source(row, values);
      if (s.ok()) s = CheckFinite(values, cols_, row, "value");
      if (!s.ok()) return failure.Report(row, std::move(s));
      const int64_t lane = row % kRowBlock;
      for (int64_t c = 0; c < cols_; ++c) {
        const int64_t at = c * kRowBlock + lane;
        if (float_storage_ == FloatStorage::kF32) {
          reinterpret_cast<float*>(dst)[at] = values[c];
          continue;
        }
        const bool half = float_storage_ == FloatStorage::kF16;
        if (half ? !ExactInF16(values[c]) : !ExactInBf16(values[c])) inexact = true;
        reinterpret_cast<uint16_t*>(dst)[at] = half ? F32ToF16(values[c]) : F32ToBf16(values[c]);
      }
      if (inexact) return;
    }
  });
  *exact = !inexact;
  return failure.status();
}

Status PackedMatrix::Allocate() {
  bytes_ = AlignedBuffer();  // frees the previous try before the next is asked for
  if (block_bytes_ > INT64_MAX / blocks()) {
    return Status::OutOfMemory("a weight matrix of " + std::to_string(rows_) + " rows and " +
                               std::to_string(cols_) + " columns exceeds the address space");
  }
  KVANT_ASSIGN_OR_RETURN(bytes_, AlignedBuffer::Create(packed_bytes()));
  return Status::Ok();
}

void PackedMatrix::DecodeRow(int64_t row, float* out) const {
  const uint8_t* src = block(row / kRowBlock);
  const int lane = static_cast<int>(row % kRowBlock);
  if (!grouped_) {
    for (int64_t c = 0; c < cols_; ++c) {
      const int64_t at = c * kRowBlock + lane;
      switch (float_storage_) {
        case FloatStorage::kF32:
          out[c] = reinterpret_cast<const float*>(src)[at];
          break;
        case FloatStorage::kF16:
          out[c] = F16ToF32(reinterpret_cast<const uint16_t*>(src)[at]);
          break;
        case FloatStorage::kBf16:
          out[c] = Bf16ToF32(reinterpret_cast<const uint16_t*>(src)[at]);
          break;
      }
    }
    return;
  }
  const GroupShape shape(spec_, half_scales_);
  for (int64_t c = 0; c < cols_; c += spec_.group, src += shape.bytes) {
    const float scale = LoadScale(src, shape.half, lane);
    const float offset =
        spec_.has_offset ? LoadScale(src + shape.plane_bytes, shape.half, lane) : 0.0f;
    for (int i = 0; i < spec_.group; ++i) {
      int code = src[shape.CodeAt(i, lane)];
      if (shape.four) code = shape.HighNibble(i) ? code >> 4 : code & 15;
      out[c + i] = std::fma(scale, static_cast<float>(code - spec_.zero), offset);
    }
  }
}

}  // namespace kvant
