// Writer of GGUF version 3 files (little endian): metadata and tensors from memory.
//
// What it accepts, GgufFile reads back: the same limits hold on both sides. Metadata is copied;
// tensor data is not, and must stay alive and unchanged until the file is written.
// A failed call leaves the writer as it was. Thread rules: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_file.h"
#include "kvant/status.h"

namespace kvant {

class GgufWriter {
 public:
  // All: kInvalidArgument, naming the key, when it is empty, too long or already there, or when a
  // string is too long. The key "general.alignment" sets the alignment: AddU32, a power of two of
  // at least 8.
  Status AddU32(std::string_view key, uint32_t value);
  Status AddI32(std::string_view key, int32_t value);
  Status AddU64(std::string_view key, uint64_t value);
  Status AddF32(std::string_view key, float value);
  Status AddBool(std::string_view key, bool value);
  Status AddString(std::string_view key, std::string_view value);
  Status AddU32Array(std::string_view key, std::span<const uint32_t> values);
  Status AddI32Array(std::string_view key, std::span<const int32_t> values);
  Status AddF32Array(std::string_view key, std::span<const float> values);
  Status AddBoolArray(std::string_view key, const std::vector<bool>& values);
  Status AddStringArray(std::string_view key, std::span<const std::string_view> values);

  // Any entry of another file, as it stands there.
  Status AddEntry(const GgufEntry& entry);

  // dims: 1 to 4, row length first. kInvalidArgument, naming the tensor, when the name is empty,
  // too long or already there, the shape is impossible, or data is not exactly the tensor's bytes.
  Status AddTensor(std::string_view name, WeightType type, std::span<const int64_t> dims,
                   std::span<const std::byte> data);

  // The whole file in memory: for small ones.
  std::vector<std::byte> ToBytes() const;

  // Writes beside `path`, syncs, then renames over it: at any moment path holds the old file or the
  // new one, whole. kIo names path and cause; then nothing new is left behind.
  Status WriteFile(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    WeightType type;
    std::vector<int64_t> dims;
    std::span<const std::byte> data;
  };

  Status AddValue(std::string_view key, GgufValueType type, std::span<const std::byte> payload);
  Status AddArray(std::string_view key, GgufValueType element_type, uint64_t count,
                  std::span<const std::byte> payload);
  Status CheckKey(std::string_view key) const;
  std::vector<std::byte> Head() const;  // all before the data section, padded

  uint32_t alignment_ = kGgufDefaultAlignment;
  uint64_t entry_count_ = 0;
  std::vector<std::byte> metadata_;  // as in the file
  std::vector<Tensor> tensors_;
  std::set<std::string, std::less<>> keys_;
  std::set<std::string, std::less<>> tensor_names_;
};

}  // namespace kvant
