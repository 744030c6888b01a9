#include "kvant/inspect.h"

#include <algorithm>

#include "base/xxh64.h"
#include "gguf/gguf_file.h"
#include "model/config.h"

namespace kvant {
namespace {

constexpr size_t kShownElements = 8;
constexpr size_t kShownStringBytes = 120;

constexpr uint32_t kMaxLayers = 1024, kMaxHeads = 4096, kMaxHeadDim = 1024, kMaxWidth = 1u << 24;

// The text of an untrusted string without the quotes that messages put around it.
std::string Printable(std::string_view text) {
  const std::string quoted = QuoteUntrusted(text, 256);
  return quoted.substr(1, quoted.size() - 2);
}

// The geometry as every transformer's file states it; that the model can also be run is another
// question, which Model::Load answers.
Result<KvGeometry> ReadGeometry(const GgufFile& file, const std::string& architecture) {
  const auto key = [&](const char* name) { return architecture + "." + name; };
  KVANT_ASSIGN_OR_RETURN(const uint32_t layers,
                         file.GetU32InRange(key("block_count"), 1, kMaxLayers));
  KVANT_ASSIGN_OR_RETURN(const uint32_t q_heads,
                         file.GetU32InRange(key("attention.head_count"), 1, kMaxHeads));
  const auto to_int = [](uint32_t n) { return static_cast<int>(n); };
  if (file.FindEntry(key("attention.kv_lora_rank")) != nullptr) {
    // Multi-head latent attention: a latent and a RoPE key for all heads.
    KVANT_ASSIGN_OR_RETURN(const uint32_t latent,
                           file.GetU32InRange(key("attention.kv_lora_rank"), 1, kMaxHeadDim));
    KVANT_ASSIGN_OR_RETURN(const uint32_t rope,
                           file.GetU32InRange(key("rope.dimension_count"), 1, kMaxHeadDim));
    const KvGeometry geometry{to_int(layers), 1, to_int(latent + rope), to_int(q_heads),
                              to_int(latent)};
    KVANT_RETURN_IF_ERROR(CheckGeometry(geometry));
    return geometry;
  }
  KVANT_ASSIGN_OR_RETURN(
      const uint32_t kv_heads,
      ValueOr(file.GetU32InRange(key("attention.head_count_kv"), 1, kMaxHeads), q_heads));
  KVANT_ASSIGN_OR_RETURN(
      const uint32_t embedding,
      ValueOr(file.GetU32InRange(key("embedding_length"), 1, kMaxWidth), uint32_t{0}));
  KVANT_ASSIGN_OR_RETURN(const uint32_t key_length,
                         ValueOr(file.GetU32InRange(key("attention.key_length"), 1, kMaxHeadDim),
                                 embedding / q_heads));
  KVANT_ASSIGN_OR_RETURN(const uint32_t value_length,
                         ValueOr(file.GetU32InRange(key("attention.value_length"), 1, kMaxHeadDim),
                                 embedding / q_heads));
  if (key_length != value_length) {
    return Status::Unsupported("keys have " + std::to_string(key_length) + " channels and values " +
                               std::to_string(value_length));
  }
  const KvGeometry geometry{to_int(layers), to_int(kv_heads), to_int(key_length), to_int(q_heads)};
  KVANT_RETURN_IF_ERROR(CheckGeometry(geometry));
  return geometry;
}

std::vector<GgufTypeTotal> TotalByType(const std::vector<GgufTensorText>& tensors) {
  std::vector<GgufTypeTotal> totals;
  for (const GgufTensorText& tensor : tensors) {
    auto total = std::find_if(totals.begin(), totals.end(),
                              [&](const GgufTypeTotal& t) { return t.type == tensor.type; });
    if (total == totals.end()) total = totals.insert(totals.end(), GgufTypeTotal{tensor.type});
    int64_t values = 1;
    for (int64_t dim : tensor.dims) values *= dim;
    total->tensors += 1;
    total->values += values;
    total->bytes += tensor.bytes;
  }
  std::stable_sort(
      totals.begin(), totals.end(),
      [](const GgufTypeTotal& a, const GgufTypeTotal& b) { return a.bytes > b.bytes; });
  return totals;
}

int64_t ReadOptionalCount(const GgufFile& file, const std::string& key) {
  const Result<uint32_t> value = file.GetU32(key);
  return value.ok() ? *value : 0;
}

}  // namespace

Result<GgufSummary> InspectGguf(const std::string& path) {
  KVANT_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  GgufSummary summary;
  summary.version = file.version();
  summary.file_bytes = static_cast<int64_t>(file.bytes().size());
  summary.file_hash = Xxh64(file.bytes());
  for (const GgufEntry& entry : file.metadata()) {
    std::string type(GgufValueTypeName(entry.value.type));
    if (entry.value.type == GgufValueType::kArray) {
      type += " of " + std::string(GgufValueTypeName(entry.value.element_type));
    }
    summary.metadata.push_back({Printable(entry.key), std::move(type),
                                ToText(entry.value, kShownElements, kShownStringBytes)});
  }
  for (const GgufTensor& tensor : file.tensors()) {
    summary.tensors.push_back({Printable(tensor.name),
                               std::string(InfoOf(tensor.type).name),
                               {tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims},
                               static_cast<int64_t>(tensor.data.size())});
  }
  summary.types = TotalByType(summary.tensors);

  const Result<std::string_view> architecture = file.GetString("general.architecture");
  if (!architecture.ok()) {
    summary.geometry_problem = architecture.status().message();
    return summary;
  }
  summary.architecture = Printable(*architecture);
  const std::string prefix(*architecture);
  const Result<KvGeometry> geometry = ReadGeometry(file, prefix);
  if (geometry.ok()) {
    summary.geometry = *geometry;
  } else {
    summary.geometry_problem = geometry.status().message();
  }
  summary.context_tokens = ReadOptionalCount(file, prefix + ".context_length");
  summary.sliding_window_tokens = ReadOptionalCount(file, prefix + ".attention.sliding_window");
  if (geometry.ok()) {
    Result<std::vector<int64_t>> windows = ReadLayerWindows(file, geometry->layers);
    if (windows.ok()) summary.layer_windows = std::move(windows).value();
  }
  return summary;
}

}  // namespace kvant
