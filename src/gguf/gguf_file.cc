#include "gguf/gguf_file.h"

#include <algorithm>
#include <utility>

#include "gguf/gguf_parser.h"

namespace kvant {

Result<GgufFile> GgufFile::Open(const std::string& path) {
  KVANT_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  auto file = Parse(mapped.bytes());
  if (!file.ok()) return Status(file.status().code(), path + ": " + file.status().message());
  file->file_ = std::move(mapped);
  return file;
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes) {
  return GgufParser(bytes).Parse();
}

const GgufEntry* GgufFile::FindEntry(std::string_view key) const {
  const auto at = std::lower_bound(
      metadata_by_key_.begin(), metadata_by_key_.end(), key,
      [this](uint32_t index, std::string_view wanted) { return metadata_[index].key < wanted; });
  if (at == metadata_by_key_.end() || metadata_[*at].key != key) return nullptr;
  return &metadata_[*at];
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_by_name_.begin(), tensors_by_name_.end(), name,
      [this](uint32_t index, std::string_view wanted) { return tensors_[index].name < wanted; });
  if (at == tensors_by_name_.end() || tensors_[*at].name != name) return nullptr;
  return &tensors_[*at];
}

Result<const GgufTensor*> GgufFile::GetTensor(std::string_view name) const {
  const GgufTensor* tensor = FindTensor(name);
  if (tensor == nullptr) return Status::NotFound("tensor " + QuoteUntrusted(name) + " is missing");
  return tensor;
}

Result<uint32_t> GgufFile::GetU32InRange(std::string_view key, uint32_t low, uint32_t high) const {
  KVANT_ASSIGN_OR_RETURN(const uint32_t value, GetU32(key));
  if (value >= low && value <= high) return value;
  return Status::Corrupt("key " + QuoteUntrusted(key) + " holds " + std::to_string(value) +
                         ", which is not in " + std::to_string(low) + ".." + std::to_string(high));
}

}  // namespace kvant
