#include "model/weight_tensors.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace kvant {
namespace {

std::string ShapeText(const TensorShape& shape) {
  std::string text = "[" + std::to_string(shape.columns);
  if (shape.rows != 0) text += ", " + std::to_string(shape.rows);
  if (shape.matrices != 1) text += ", " + std::to_string(shape.matrices);
  return text + "]";
}

std::string ShapeText(const GgufTensor& tensor) {
  std::string text;
  for (int i = 0; i < tensor.n_dims; ++i) {
    text += (i == 0 ? "[" : ", ") + std::to_string(tensor.dims[static_cast<size_t>(i)]);
  }
  return text + "]";
}

Status NameTensor(const GgufTensor& tensor, const Status& status) {
  return {status.code(), "tensor '" + std::string(tensor.name) + "': " + status.message()};
}

// Some rows of a tensor.
struct TensorRows {
  const GgufTensor& tensor;
  int64_t first, count;

  const std::byte* Row(int64_t row) const {
    return tensor.data.data() +
           static_cast<int64_t>(tensor.data.size()) / tensor.rows() * (first + row);
  }
};

Result<PackedMatrix> PackFloat(const TensorRows& rows, ThreadPool& pool) {
  const GgufTensor& tensor = rows.tensor;
  const FloatRowSource source = [&](int64_t row, float* out) {
    return Dequantize(tensor.type, rows.Row(row), tensor.row_values(), out);
  };
  return PackedMatrix::CreateFloat(rows.count, tensor.row_values(), source, &pool);
}

Result<PackedMatrix> PackGrouped(const TensorRows& rows, ThreadPool& pool) {
  const GgufTensor& tensor = rows.tensor;
  const GroupTraits traits = GroupTraitsOf(tensor.type);
  const GroupedSpec spec = {traits.bits, traits.group, traits.zero, traits.has_offset};
  const GroupedRowSource source = [&](int64_t row, const GroupedRow& out) {
    return UnpackGroups(tensor.type, rows.Row(row), tensor.row_values(), out.codes, out.scales,
                        out.offsets);
  };
  return PackedMatrix::CreateGrouped(rows.count, tensor.row_values(), spec, source, &pool);
}

}  // namespace

Status TensorChecker::Check(std::string_view name, const TensorShape& shape) {
  KVANT_ASSIGN_OR_RETURN(const GgufTensor* tensor, file_.GetTensor(name));
  known_.insert(tensor->name);
  const bool fits = tensor->dims[0] == shape.columns &&
                    tensor->dims[1] == std::max<int64_t>(shape.rows, 1) &&
                    tensor->dims[2] == shape.matrices && tensor->dims[3] == 1;
  if (!fits) {
    return Status::Corrupt("tensor '" + std::string(name) + "' has shape " + ShapeText(*tensor) +
                           " where the metadata ask for " + ShapeText(shape));
  }
  const WeightTypeInfo& info = InfoOf(tensor->type);
  if (!info.decodable) {
    return Status::Unsupported("tensor '" + std::string(name) + "' has type " +
                               std::string(info.name) +
                               ", which kvant does not compute with; possible: F32 F16 BF16 Q4_0 "
                               "Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K");
  }
  return Status::Ok();
}

Status TensorChecker::RefuseOthers() const {
  for (const GgufTensor& tensor : file_.tensors()) {
    if (known_.contains(tensor.name)) continue;
    return Status::Unsupported("tensor " + QuoteUntrusted(tensor.name) +
                               " has no place in this forward pass");
  }
  return Status::Ok();
}

Status TensorPacker::Pack(std::string_view name, PackedMatrix* out) const {
  return PackRows(name, 0, file_.FindTensor(name)->rows(), out);
}

Status TensorPacker::PackRows(std::string_view name, int64_t first_row, int64_t rows,
                              PackedMatrix* out) const {
  const GgufTensor& tensor = *file_.FindTensor(name);
  const TensorRows part = {tensor, first_row, rows};
  Result<PackedMatrix> matrix =
      GroupTraitsOf(tensor.type).group == 0 ? PackFloat(part, pool_) : PackGrouped(part, pool_);
  if (!matrix.ok()) return NameTensor(tensor, matrix.status());
  *out = std::move(matrix).value();
  return Status::Ok();
}

Status TensorPacker::ReadValues(std::string_view name, std::vector<float>* out) const {
  const GgufTensor& tensor = *file_.FindTensor(name);
  out->resize(static_cast<size_t>(tensor.values()));
  KVANT_RETURN_IF_ERROR(Dequantize(tensor.type, tensor.data.data(), tensor.values(), out->data()));
  for (size_t i = 0; i < out->size(); ++i) {
    if (std::isfinite((*out)[i])) continue;
    return NameTensor(tensor, Status::Corrupt("value " + std::to_string(i) + " is not finite"));
  }
  return Status::Ok();
}

}  // namespace kvant
