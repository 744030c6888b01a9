#include "gguf/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace kvant {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read by copying its bytes");

// The least that one element can take in the file.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;           // key of one byte, type, u8
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name of one byte, one dimension
constexpr uint64_t kStringHeadBytes = 8;
constexpr uint64_t kArrayHeadBytes = 4 + 8;

Status CheckCount(const char* what, uint64_t count, uint64_t limit) {
  if (count <= limit) return Status::Ok();
  return Status::Corrupt(std::string(what) + " is " + std::to_string(count) + ", more than the " +
                         std::to_string(limit) + " allowed");
}

// Indices of `items`, sorted by name(item). kCorrupt when two are equal.
template <typename T, typename Name>
Result<std::vector<uint32_t>> SortedByName(const std::vector<T>& items, const char* what,
                                           const Name& name) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return name(items[a]) < name(items[b]); });
  const auto twin = std::adjacent_find(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return name(items[a]) == name(items[b]);
  });
  if (twin == order.end()) return order;
  return Status::Corrupt(std::string(what) + " " + QuoteUntrusted(name(items[*twin])) +
                         " occurs twice");
}

}  // namespace

GgufParser::GgufParser(std::span<const std::byte> bytes) : cursor_(bytes) { file_.bytes_ = bytes; }

Result<GgufFile> GgufParser::Parse() && {
  KVANT_RETURN_IF_ERROR(ParseHead());
  KVANT_RETURN_IF_ERROR(ParseMetadata());
  KVANT_RETURN_IF_ERROR(ParseTensors());
  KVANT_RETURN_IF_ERROR(IndexNames());
  KVANT_RETURN_IF_ERROR(PlaceTensors());
  return std::move(file_);
}

Status GgufParser::ParseHead() {
  uint32_t magic = 0;
  KVANT_RETURN_IF_ERROR(cursor_.ReadNumber("the magic", &magic));
  if (magic != kGgufMagic) return Status::Corrupt("the file does not start with 'GGUF'");
  KVANT_RETURN_IF_ERROR(cursor_.ReadNumber("the version", &file_.version_));
  if (file_.version_ == 0x02000000 || file_.version_ == 0x03000000) {
    return Status::Unsupported("the file is big endian, only little endian can be read");
  }
  if (file_.version_ != 2 && file_.version_ != 3) {
    return Status::Unsupported("GGUF version " + std::to_string(file_.version_) +
                               " cannot be read, only 2 and 3");
  }
  KVANT_RETURN_IF_ERROR(cursor_.ReadNumber("the tensor count", &tensor_count_));
  KVANT_RETURN_IF_ERROR(cursor_.ReadNumber("the metadata count", &entry_count_));
  KVANT_RETURN_IF_ERROR(CheckCount("the tensor count", tensor_count_, kGgufMaxTensors));
  KVANT_RETURN_IF_ERROR(CheckCount("the metadata count", entry_count_, kGgufMaxEntries));
  KVANT_RETURN_IF_ERROR(cursor_.CheckFits("the metadata", entry_count_, kMinEntryBytes));
  return cursor_.CheckFits("the tensor list", tensor_count_, kMinTensorBytes);
}

Status GgufParser::ParseMetadata() {
  file_.metadata_.reserve(static_cast<size_t>(entry_count_));
  for (uint64_t i = 0; i < entry_count_; ++i) KVANT_RETURN_IF_ERROR(ParseEntry());
  const GgufEntry* alignment = nullptr;
  for (const GgufEntry& entry : file_.metadata_) {
    if (entry.key == kGgufAlignmentKey) alignment = &entry;
  }
  if (alignment == nullptr) return Status::Ok();
  KVANT_ASSIGN_OR_RETURN(file_.alignment_, ReadInteger<uint32_t>(*alignment));
  if (IsGgufAlignment(file_.alignment_)) return Status::Ok();
  return Status::Corrupt("key 'general.alignment' holds " + std::to_string(file_.alignment_) +
                         ", which is not a power of two of at least 8");
}

Status GgufParser::ParseEntry() {
  GgufEntry entry;
  const std::string ordinal = "metadata key " + std::to_string(file_.metadata_.size());
  KVANT_RETURN_IF_ERROR(cursor_.ReadString(ordinal, kGgufMaxKeyBytes, &entry.key));
  if (entry.key.empty()) return Status::Corrupt(ordinal + " is empty");

  const std::string what = "key " + QuoteUntrusted(entry.key);
  uint32_t type = 0;
  KVANT_RETURN_IF_ERROR(cursor_.ReadNumber("the type of " + what, &type));
  if (type >= kGgufValueTypeCount) {
    return Status::Corrupt(what + " has the unknown value type " + std::to_string(type));
  }
  GgufValue& value = entry.value;
  value.type = value.element_type = static_cast<GgufValueType>(type);
  if (value.type == GgufValueType::kArray) {
    KVANT_RETURN_IF_ERROR(ParseArray(what, 1, &value));
  } else {
    const size_t start = cursor_.position();
    KVANT_RETURN_IF_ERROR(SkipElements(what, value.type, 1, 1));
    value.data = cursor_.Since(start);
  }
  file_.metadata_.push_back(entry);
  return Status::Ok();
}

Status GgufParser::ParseArray(const std::string& what, int depth, GgufValue* value) {
  if (depth > kGgufMaxArrayDepth) {
    return Status::Corrupt(what + " nests arrays deeper than " +
                           std::to_string(kGgufMaxArrayDepth));
  }
  uint32_t type = 0;
  KVANT_RETURN_IF_ERROR(cursor_.ReadNumber(what, &type));
  KVANT_RETURN_IF_ERROR(cursor_.ReadNumber(what, &value->count));
  if (type >= kGgufValueTypeCount) {
    return Status::Corrupt(what + " is an array of the unknown value type " + std::to_string(type));
  }
  value->element_type = static_cast<GgufValueType>(type);
  const size_t start = cursor_.position();
  KVANT_RETURN_IF_ERROR(SkipElements(what, value->element_type, value->count, depth));
  value->data = cursor_.Since(start);
  return Status::Ok();
}

Status GgufParser::SkipElements(const std::string& what, GgufValueType type, uint64_t count,
                                int depth) {
  if (type == GgufValueType::kString) {
    KVANT_RETURN_IF_ERROR(cursor_.CheckFits(what, count, kStringHeadBytes));
    std::string_view text;
    for (uint64_t i = 0; i < count; ++i) {
      KVANT_RETURN_IF_ERROR(cursor_.ReadString(what, kGgufMaxStringBytes, &text));
    }
    return Status::Ok();
  }
  if (type == GgufValueType::kArray) {
    KVANT_RETURN_IF_ERROR(cursor_.CheckFits(what, count, kArrayHeadBytes));
    GgufValue nested;
    for (uint64_t i = 0; i < count; ++i) {
      KVANT_RETURN_IF_ERROR(ParseArray(what, depth + 1, &nested));
    }
    return Status::Ok();
  }
  const size_t start = cursor_.position();
  KVANT_RETURN_IF_ERROR(cursor_.Skip(what, count, static_cast<uint64_t>(GgufValueTypeBytes(type))));
  return type == GgufValueType::kBool ? CheckBools(what, cursor_.Since(start)) : Status::Ok();
}

Status GgufParser::CheckBools(const std::string& what, std::span<const std::byte> bools) const {
  for (const std::byte b : bools) {
    if (b > std::byte{1}) {
      return Status::Corrupt(what + " holds the bool " + std::to_string(static_cast<int>(b)) +
                             ", which is neither 0 nor 1");
    }
  }
  return Status::Ok();
}

Status GgufParser::ParseTensors() {
  KVANT_RETURN_IF_ERROR(cursor_.CheckFits("the tensor list", tensor_count_, kMinTensorBytes));
  file_.tensors_.reserve(static_cast<size_t>(tensor_count_));
  offsets_.reserve(static_cast<size_t>(tensor_count_));
  for (uint64_t i = 0; i < tensor_count_; ++i) KVANT_RETURN_IF_ERROR(ParseTensor(i));
  return Status::Ok();
}

Status GgufParser::ParseTensor(uint64_t index) {
  GgufTensor tensor;
  const std::string ordinal = "the name of tensor " + std::to_string(index);
  KVANT_RETURN_IF_ERROR(cursor_.ReadString(ordinal, kGgufMaxTensorNameBytes, &tensor.name));
  if (tensor.name.empty()) return Status::Corrupt(ordinal + " is empty");

  const std::string what = "tensor " + QuoteUntrusted(tensor.name);
  KVANT_RETURN_IF_ERROR(ParseShape(what, &tensor));
  uint32_t type = 0;
  uint64_t offset = 0;
  KVANT_RETURN_IF_ERROR(cursor_.ReadNumber("the type of " + what, &type));
  KVANT_RETURN_IF_ERROR(cursor_.ReadNumber("the offset of " + what, &offset));
  const WeightTypeInfo* info = FindWeightType(type);
  if (info == nullptr) {
    return Status::Unsupported(what + " has the unknown type " + std::to_string(type));
  }
  tensor.type = info->type;
  file_.tensors_.push_back(tensor);
  offsets_.push_back(offset);
  return Status::Ok();
}

Status GgufParser::ParseShape(const std::string& what, GgufTensor* tensor) {
  uint32_t n_dims = 0;
  KVANT_RETURN_IF_ERROR(cursor_.ReadNumber("the dimension count of " + what, &n_dims));
  if (n_dims < 1 || n_dims > kMaxTensorDims) {
    return Status::Corrupt(what + " has " + std::to_string(n_dims) +
                           " dimensions, which is not in 1..4");
  }
  tensor->n_dims = static_cast<int>(n_dims);
  for (uint32_t d = 0; d < n_dims; ++d) {
    uint64_t dim = 0;
    KVANT_RETURN_IF_ERROR(cursor_.ReadNumber("the dimensions of " + what, &dim));
    if (!std::in_range<int64_t>(dim)) {
      return Status::Corrupt(what + " has the dimension " + std::to_string(dim) +
                             ", which is too large");
    }
    tensor->dims[d] = static_cast<int64_t>(dim);
  }
  return Status::Ok();
}

// Offsets count from the first aligned byte after the tensor list.
Status GgufParser::PlaceTensors() {
  const uint64_t file_bytes = file_.bytes_.size();
  const uint64_t alignment = file_.alignment_;
  // No overflow: a position in a file is below 2^63, an alignment below 2^32.
  const uint64_t data_start = (cursor_.position() + alignment - 1) / alignment * alignment;
  const uint64_t data_bytes = data_start <= file_bytes ? file_bytes - data_start : 0;
  for (size_t i = 0; i < file_.tensors_.size(); ++i) {
    GgufTensor& tensor = file_.tensors_[i];
    const std::string what = "tensor " + QuoteUntrusted(tensor.name);
    const auto bytes = TensorBytes(tensor.type, std::span(tensor.dims).first(tensor.n_dims));
    if (!bytes.ok()) return Status(bytes.status().code(), what + " " + bytes.status().message());
    if (offsets_[i] % alignment != 0) {
      return Status::Corrupt(what + " has the offset " + std::to_string(offsets_[i]) +
                             ", which is not a multiple of the alignment " +
                             std::to_string(alignment));
    }
    const uint64_t size = static_cast<uint64_t>(*bytes);
    if (offsets_[i] > data_bytes || size > data_bytes - offsets_[i]) {
      return Status::Corrupt(what + " needs " + std::to_string(size) + " bytes at offset " +
                             std::to_string(offsets_[i]) + ", but the file holds " +
                             std::to_string(data_bytes) + " bytes of tensor data");
    }
    tensor.data = file_.bytes_.subspan(data_start + offsets_[i], size);
  }
  return Status::Ok();
}

Status GgufParser::IndexNames() {
  KVANT_ASSIGN_OR_RETURN(
      file_.metadata_by_key_,
      SortedByName(file_.metadata_, "key", [](const GgufEntry& entry) { return entry.key; }));
  KVANT_ASSIGN_OR_RETURN(
      file_.tensors_by_name_,
      SortedByName(file_.tensors_, "tensor", [](const GgufTensor& tensor) { return tensor.name; }));
  return Status::Ok();
}

}  // namespace kvant
