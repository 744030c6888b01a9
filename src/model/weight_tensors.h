// The tensors of a GGUF file, on their way into ModelWeights: checked first, all of them, then
// packed one by one.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "gguf/gguf_file.h"
#include "kvant/status.h"
#include "matmul/packed_matrix.h"

namespace kvant {

// What a tensor has to be: rows of `columns` values, `matrices` times. No rows: a vector.
struct TensorShape {
  int64_t columns = 0, rows = 0, matrices = 1;
};

// Checks the tensors that a forward pass needs, remembering which they were.
class TensorChecker {
 public:
  // file must outlive it.
  explicit TensorChecker(const GgufFile& file) : file_(file) {}

  // kNotFound, kCorrupt for another shape, kUnsupported for a type that kvant does not compute
  // with; all name the tensor.
  Status Check(std::string_view name, const TensorShape& shape);
  // A tensor that nobody asked for is a part of the model that would be left out in silence.
  Status RefuseOthers() const;

 private:
  const GgufFile& file_;
  std::set<std::string_view> known_;
};

// Packs tensors whose presence and shape were checked.
class TensorPacker {
 public:
  // file and pool must outlive it.
  TensorPacker(const GgufFile& file, ThreadPool& pool) : file_(file), pool_(pool) {}

  bool Has(std::string_view name) const { return file_.FindTensor(name) != nullptr; }
  Status Pack(std::string_view name, PackedMatrix* out) const;
  // Rows [first_row, first_row + rows), counted through all matrices of the tensor.
  Status PackRows(std::string_view name, int64_t first_row, int64_t rows, PackedMatrix* out) const;
  // All values, row by row; kCorrupt where one is not finite.
  Status ReadValues(std::string_view name, std::vector<float>* out) const;

 private:
  const GgufFile& file_;
  ThreadPool& pool_;
};

}  // namespace kvant
