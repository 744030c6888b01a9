// Reader of GGUF version 2 and 3 files (little endian): metadata and tensors as views of the bytes.
//
// The bytes are untrusted. Every count and length is checked against the bytes that remain before
// anything is allocated for it; nothing that was accepted points outside the file. What is checked:
// magic, version, keys (not empty, no duplicates), value types, tensor names (same), 1 to 4
// positive dimensions, rows of whole blocks, no overflow, offsets aligned and inside the file.
// Tensors may share bytes. What a key means is for its reader to check, see GetU32InRange. Thread
// rules: immutable once made; any number of threads may read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_value.h"
#include "gguf/mapped_file.h"
#include "gguf/weight_types.h"
#include "kvant/status.h"

namespace kvant {

inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
inline constexpr uint32_t kGgufDefaultAlignment = 32;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";

// Limits on untrusted files, far above what real ones need.
inline constexpr uint64_t kGgufMaxEntries = uint64_t{1} << 16;
inline constexpr uint64_t kGgufMaxTensors = uint64_t{1} << 20;
inline constexpr uint64_t kGgufMaxKeyBytes = (uint64_t{1} << 16) - 1;
inline constexpr uint64_t kGgufMaxTensorNameBytes = 64;
inline constexpr uint64_t kGgufMaxStringBytes = uint64_t{1} << 26;
inline constexpr int kGgufMaxArrayDepth = 4;

constexpr bool IsGgufAlignment(uint32_t value) { return value >= 8 && (value & (value - 1)) == 0; }

// Views: the GgufFile must outlive it.
struct GgufTensor {
  std::string_view name;
  WeightType type = WeightType::kF32;
  int n_dims = 1;
  std::array<int64_t, kMaxTensorDims> dims{1, 1, 1, 1};  // [row length, rows, ...]; unused are 1
  std::span<const std::byte> data;                       // exactly TensorBytes(type, dims)

  int64_t row_values() const { return dims[0]; }
  int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  int64_t values() const { return row_values() * rows(); }
};

// Move-only; views that it gave out stay valid when it moves.
class GgufFile {
 public:
  // Maps the file. kNotFound, kIo, kCorrupt or kUnsupported; the message starts with the path.
  static Result<GgufFile> Open(const std::string& path);

  // The same for bytes in memory, which the caller keeps alive and unchanged.
  static Result<GgufFile> Parse(std::span<const std::byte> bytes);

  GgufFile(GgufFile&&) noexcept = default;
  GgufFile& operator=(GgufFile&&) noexcept = default;

  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  std::span<const std::byte> bytes() const { return bytes_; }  // the whole file

  // In file order.
  std::span<const GgufEntry> metadata() const { return metadata_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }

  // Null when there is none.
  const GgufEntry* FindEntry(std::string_view key) const;
  const GgufTensor* FindTensor(std::string_view name) const;

  // kNotFound names the tensor.
  Result<const GgufTensor*> GetTensor(std::string_view name) const;

  // Metadata by key. kNotFound names a missing key; kCorrupt names key, held and wanted type, or
  // the value that does not fit. Integer getters take any integer width, float getters f32 and f64.
  Result<uint32_t> GetU32(std::string_view key) const { return Get(key, ReadInteger<uint32_t>); }
  Result<int32_t> GetI32(std::string_view key) const { return Get(key, ReadInteger<int32_t>); }
  Result<uint64_t> GetU64(std::string_view key) const { return Get(key, ReadInteger<uint64_t>); }
  Result<int64_t> GetI64(std::string_view key) const { return Get(key, ReadInteger<int64_t>); }
  Result<float> GetF32(std::string_view key) const { return Get(key, ReadFloat); }
  Result<bool> GetBool(std::string_view key) const { return Get(key, ReadBool); }
  Result<std::string_view> GetString(std::string_view key) const { return Get(key, ReadString); }

  // Also kCorrupt, naming key, value and range, when the value is outside [low, high]: for counts
  // that size allocations, such as layers and heads.
  Result<uint32_t> GetU32InRange(std::string_view key, uint32_t low, uint32_t high) const;

  Result<std::vector<uint32_t>> GetU32Array(std::string_view key) const {
    return Get(key, ReadIntegers<uint32_t>);
  }
  Result<std::vector<int32_t>> GetI32Array(std::string_view key) const {
    return Get(key, ReadIntegers<int32_t>);
  }
  Result<std::vector<float>> GetF32Array(std::string_view key) const {
    return Get(key, ReadFloats);
  }
  Result<std::vector<bool>> GetBoolArray(std::string_view key) const { return Get(key, ReadBools); }
  // Views into the file: 16 bytes an element.
  Result<std::vector<std::string_view>> GetStringArray(std::string_view key) const {
    return Get(key, ReadStrings);
  }

 private:
  friend class GgufParser;
  GgufFile() = default;

  template <typename T>
  Result<T> Get(std::string_view key, Result<T> (*read)(const GgufEntry&)) const {
    const GgufEntry* entry = FindEntry(key);
    if (entry == nullptr) return Status::NotFound("key " + QuoteUntrusted(key) + " is missing");
    return read(*entry);
  }

  MappedFile file_;  // empty when made by Parse
  std::span<const std::byte> bytes_;
  uint32_t version_ = 0;
  uint32_t alignment_ = kGgufDefaultAlignment;
  std::vector<GgufEntry> metadata_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> metadata_by_key_;  // indices, sorted by key
  std::vector<uint32_t> tensors_by_name_;  // indices, sorted by name
};

// For optional keys: `fallback` when the key was missing, otherwise the value or its error.
//   KVANT_ASSIGN_OR_RETURN(float base, ValueOr(file.GetF32("llama.rope.freq_base"), 10000.0f));
template <typename T>
Result<T> ValueOr(Result<T> result, T fallback) {
  if (!result.ok() && result.status().code() == StatusCode::kNotFound) return fallback;
  return result;
}

}  // namespace kvant
