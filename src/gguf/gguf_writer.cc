#include "gguf/gguf_writer.h"

#include <algorithm>
#include <utility>

#include "gguf/atomic_file.h"

namespace kvant {
namespace {

using Bytes = std::vector<std::byte>;

template <typename T>
std::span<const std::byte> AsBytes(const T& number) {
  return std::as_bytes(std::span(&number, 1));
}

void Append(std::span<const std::byte> bytes, Bytes* out) {
  const size_t start = out->size();
  out->resize(start + bytes.size());
  std::ranges::copy(bytes, out->begin() + static_cast<std::ptrdiff_t>(start));
}

template <typename T>
void AppendNumber(T number, Bytes* out) {
  Append(AsBytes(number), out);
}

void AppendString(std::string_view text, Bytes* out) {
  AppendNumber(static_cast<uint64_t>(text.size()), out);
  Append(std::as_bytes(std::span(text)), out);
}

uint64_t RoundUpTo(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

Status CheckString(std::string_view key, std::string_view text) {
  if (text.size() <= kGgufMaxStringBytes) return Status::Ok();
  return Status::InvalidArgument("key " + QuoteUntrusted(key) + " would hold a string of " +
                                 std::to_string(text.size()) + " bytes, more than the " +
                                 std::to_string(kGgufMaxStringBytes) + " allowed");
}

}  // namespace

Status GgufWriter::AddU32(std::string_view key, uint32_t value) {
  return AddValue(key, GgufValueType::kU32, AsBytes(value));
}

Status GgufWriter::AddI32(std::string_view key, int32_t value) {
  return AddValue(key, GgufValueType::kI32, AsBytes(value));
}

Status GgufWriter::AddU64(std::string_view key, uint64_t value) {
  return AddValue(key, GgufValueType::kU64, AsBytes(value));
}

Status GgufWriter::AddF32(std::string_view key, float value) {
  return AddValue(key, GgufValueType::kF32, AsBytes(value));
}

Status GgufWriter::AddBool(std::string_view key, bool value) {
  return AddValue(key, GgufValueType::kBool, AsBytes(static_cast<uint8_t>(value)));
}

Status GgufWriter::AddString(std::string_view key, std::string_view value) {
  KVANT_RETURN_IF_ERROR(CheckString(key, value));
  Bytes payload;
  AppendString(value, &payload);
  return AddValue(key, GgufValueType::kString, payload);
}

Status GgufWriter::AddU32Array(std::string_view key, std::span<const uint32_t> values) {
  return AddArray(key, GgufValueType::kU32, values.size(), std::as_bytes(values));
}

Status GgufWriter::AddI32Array(std::string_view key, std::span<const int32_t> values) {
  return AddArray(key, GgufValueType::kI32, values.size(), std::as_bytes(values));
}

Status GgufWriter::AddF32Array(std::string_view key, std::span<const float> values) {
  return AddArray(key, GgufValueType::kF32, values.size(), std::as_bytes(values));
}

Status GgufWriter::AddBoolArray(std::string_view key, const std::vector<bool>& values) {
  Bytes payload;
  for (const bool value : values) payload.push_back(std::byte{value});
  return AddArray(key, GgufValueType::kBool, values.size(), payload);
}

Status GgufWriter::AddStringArray(std::string_view key, std::span<const std::string_view> values) {
  Bytes payload;
  for (const std::string_view value : values) {
    KVANT_RETURN_IF_ERROR(CheckString(key, value));
    AppendString(value, &payload);
  }
  return AddArray(key, GgufValueType::kString, values.size(), payload);
}

Status GgufWriter::AddEntry(const GgufEntry& entry) {
  const GgufValue& value = entry.value;
  if (value.type != GgufValueType::kArray) return AddValue(entry.key, value.type, value.data);
  return AddArray(entry.key, value.element_type, value.count, value.data);
}

Status GgufWriter::AddArray(std::string_view key, GgufValueType element_type, uint64_t count,
                            std::span<const std::byte> payload) {
  Bytes array;
  array.reserve(12 + payload.size());
  AppendNumber(static_cast<uint32_t>(element_type), &array);
  AppendNumber(count, &array);
  Append(payload, &array);
  return AddValue(key, GgufValueType::kArray, array);
}

Status GgufWriter::CheckKey(std::string_view key) const {
  if (key.empty()) return Status::InvalidArgument("a metadata key is empty");
  const std::string what = "key " + QuoteUntrusted(key);
  if (key.size() > kGgufMaxKeyBytes) {
    return Status::InvalidArgument(what + " is " + std::to_string(key.size()) +
                                   " bytes long, more than the " +
                                   std::to_string(kGgufMaxKeyBytes) + " allowed");
  }
  if (keys_.contains(key)) return Status::InvalidArgument(what + " is already there");
  if (entry_count_ == kGgufMaxEntries) {
    return Status::InvalidArgument(what + " is one more than the " +
                                   std::to_string(kGgufMaxEntries) + " allowed");
  }
  return Status::Ok();
}

Status GgufWriter::AddValue(std::string_view key, GgufValueType type,
                            std::span<const std::byte> payload) {
  KVANT_RETURN_IF_ERROR(CheckKey(key));
  if (key == kGgufAlignmentKey) {
    const auto alignment = ReadInteger<uint32_t>({key, {type, type, 1, payload}});
    if (!alignment.ok() || !IsGgufAlignment(*alignment)) {
      return Status::InvalidArgument(
          "key 'general.alignment' must hold a power of two of at least 8");
    }
    alignment_ = *alignment;
  }
  AppendString(key, &metadata_);
  AppendNumber(static_cast<uint32_t>(type), &metadata_);
  Append(payload, &metadata_);
  keys_.emplace(key);
  ++entry_count_;
  return Status::Ok();
}

Status GgufWriter::AddTensor(std::string_view name, WeightType type, std::span<const int64_t> dims,
                             std::span<const std::byte> data) {
  if (name.empty()) return Status::InvalidArgument("a tensor's name is empty");
  const std::string what = "tensor " + QuoteUntrusted(name);
  if (name.size() > kGgufMaxTensorNameBytes) {
    return Status::InvalidArgument(what + " has a name of " + std::to_string(name.size()) +
                                   " bytes, more than the " +
                                   std::to_string(kGgufMaxTensorNameBytes) + " allowed");
  }
  if (tensor_names_.contains(name)) return Status::InvalidArgument(what + " is already there");
  if (tensors_.size() == kGgufMaxTensors) {
    return Status::InvalidArgument(what + " is one more than the " +
                                   std::to_string(kGgufMaxTensors) + " allowed");
  }
  const auto bytes = TensorBytes(type, dims);
  if (!bytes.ok()) return Status::InvalidArgument(what + " " + bytes.status().message());
  if (static_cast<uint64_t>(*bytes) != data.size()) {
    return Status::InvalidArgument(what + " needs " + std::to_string(*bytes) + " bytes, but " +
                                   std::to_string(data.size()) + " were given");
  }
  tensors_.push_back({std::string(name), type, {dims.begin(), dims.end()}, data});
  tensor_names_.emplace(name);
  return Status::Ok();
}

std::vector<std::byte> GgufWriter::Head() const {
  constexpr uint32_t kVersion = 3;
  Bytes head;
  AppendNumber(kGgufMagic, &head);
  AppendNumber(kVersion, &head);
  AppendNumber(static_cast<uint64_t>(tensors_.size()), &head);
  AppendNumber(entry_count_, &head);
  Append(metadata_, &head);
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    AppendString(tensor.name, &head);
    AppendNumber(static_cast<uint32_t>(tensor.dims.size()), &head);
    for (const int64_t dim : tensor.dims) AppendNumber(dim, &head);
    AppendNumber(static_cast<uint32_t>(tensor.type), &head);
    AppendNumber(offset, &head);
    offset += RoundUpTo(tensor.data.size(), alignment_);
  }
  head.resize(RoundUpTo(head.size(), alignment_));
  return head;
}

std::vector<std::byte> GgufWriter::ToBytes() const {
  Bytes bytes = Head();
  for (const Tensor& tensor : tensors_) {
    Append(tensor.data, &bytes);
    bytes.resize(RoundUpTo(bytes.size(), alignment_));
  }
  return bytes;
}

Status GgufWriter::WriteFile(const std::string& path) const {
  KVANT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  KVANT_RETURN_IF_ERROR(file.Write(Head()));
  const Bytes zeros(alignment_);
  for (const Tensor& tensor : tensors_) {
    const uint64_t size = tensor.data.size();
    KVANT_RETURN_IF_ERROR(file.Write(tensor.data));
    KVANT_RETURN_IF_ERROR(file.Write(std::span(zeros).first(RoundUpTo(size, alignment_) - size)));
  }
  return file.Commit();
}

}  // namespace kvant
