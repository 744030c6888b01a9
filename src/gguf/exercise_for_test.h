// Reads everything that an accepted file offers, for tests and fuzzing: whatever was let in must be
// safe to use.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"

namespace kvant {

// A sum of what was read, so that no read is optimised away; aborts when a promise is broken.
inline size_t ExerciseGguf(const GgufFile& file) {
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  size_t sum = 0;
  for (const GgufEntry& entry : file.metadata()) {
    require(file.FindEntry(entry.key) == &entry);
    sum += ToText(entry.value, 100, 100).size() + QuoteUntrusted(entry.key).size();
    sum += file.GetU32(entry.key).ok() + file.GetI64(entry.key).ok();
    sum += file.GetF32(entry.key).ok() + file.GetBool(entry.key).ok();
    if (const auto text = file.GetString(entry.key); text.ok()) sum += std::string(*text).size();
    if (const auto array = file.GetI32Array(entry.key); array.ok()) sum += array->size();
    if (const auto array = file.GetF32Array(entry.key); array.ok()) sum += array->size();
    if (const auto array = file.GetBoolArray(entry.key); array.ok()) sum += array->size();
    if (const auto array = file.GetStringArray(entry.key); array.ok()) {
      for (const std::string_view text : *array) sum += std::string(text).size();
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    require(file.FindTensor(tensor.name) == &tensor);
    require(tensor.values() > 0 && tensor.rows() * tensor.row_values() == tensor.values());
    for (const std::byte b : tensor.data) sum += static_cast<size_t>(b);
    if (!InfoOf(tensor.type).decodable) continue;
    std::vector<float> values(static_cast<size_t>(tensor.values()));
    require(Dequantize(tensor.type, tensor.data.data(), tensor.values(), values.data()).ok());
    sum += values.size();
  }
  return sum;
}

}  // namespace kvant
