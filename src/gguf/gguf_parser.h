// Turns the bytes of a GGUF file into a GgufFile; see gguf_file.h for what is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/byte_cursor.h"
#include "gguf/gguf_file.h"
#include "kvant/status.h"

namespace kvant {

// Used once: construct, then Parse.
class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> bytes);
  Result<GgufFile> Parse() &&;

 private:
  Status ParseHead();
  Status ParseMetadata();
  Status ParseEntry();
  Status ParseArray(const std::string& what, int depth, GgufValue* value);
  Status SkipElements(const std::string& what, GgufValueType type, uint64_t count, int depth);
  Status CheckBools(const std::string& what, std::span<const std::byte> bools) const;
  Status ParseTensors();
  Status ParseTensor(uint64_t index);
  Status ParseShape(const std::string& what, GgufTensor* tensor);
  Status PlaceTensors();
  Status IndexNames();

  GgufFile file_;
  ByteCursor cursor_;
  uint64_t entry_count_ = 0;
  uint64_t tensor_count_ = 0;
  std::vector<uint64_t> offsets_;  // of each tensor, from the start of the data section
};

}  // namespace kvant
