// The file of a calibration, little-endian:
//   "kvantcal"   u32 version   u64 model hash   i32 layers, KV heads, head_dim, q heads
//   i64 tokens
//   per layer    of K, then of V, for 2, 3 and 4 bits: f32 sigma, s8 levels[2^bits]
//                f32 K factors[kv_heads][head_dim]
//                f32 rotations[kv_heads][head_dim][head_dim] of K, then of V
//   u32 1 and per layer two strings (u64 length, bytes), the specs of K and V; or u32 0
//   u64 XXH64 of all bytes before
#include <array>
#include <cstring>

#include "base/byte_cursor.h"
#include "base/byte_writer.h"
#include "base/xxh64.h"
#include "format/format_bytes.h"
#include "gguf/atomic_file.h"
#include "gguf/mapped_file.h"
#include "kvant/calibrate.h"

namespace kvant {
namespace {

constexpr std::array<char, 8> kMagic = {'k', 'v', 'a', 'n', 't', 'c', 'a', 'l'};
constexpr uint32_t kVersion = 1;

template <typename T>
Status ReadArray(std::string_view what, size_t count, ByteCursor* cursor, std::vector<T>* values) {
  KVANT_RETURN_IF_ERROR(cursor->CheckFits(what, count, sizeof(T)));
  values->resize(count);
  for (T& value : *values) KVANT_RETURN_IF_ERROR(cursor->ReadNumber(what, &value));
  return Status::Ok();
}

void WriteLayer(const LayerCalibration& layer, ByteWriter* writer) {
  for (const auto* side : {&layer.k_levels, &layer.v_levels}) {
    for (const FittedLevels& levels : *side) {
      writer->Number(levels.sigma);
      writer->Array(levels.levels);
    }
  }
  writer->Array(layer.k_factors);
  writer->Array(layer.k_rotation);
  writer->Array(layer.v_rotation);
}

Status ReadLayer(const KvGeometry& g, ByteCursor* cursor, LayerCalibration* layer) {
  for (auto* side : {&layer->k_levels, &layer->v_levels}) {
    for (size_t i = 0; i < side->size(); ++i) {
      FittedLevels& levels = (*side)[i];
      KVANT_RETURN_IF_ERROR(cursor->ReadNumber("levels", &levels.sigma));
      KVANT_RETURN_IF_ERROR(
          ReadArray("levels", size_t{1} << (i + kLeastFittedBits), cursor, &levels.levels));
    }
  }
  const auto channels = static_cast<size_t>(g.kv_heads) * static_cast<size_t>(g.head_dim);
  const size_t values = channels * static_cast<size_t>(g.head_dim);
  KVANT_RETURN_IF_ERROR(ReadArray("channel factors", channels, cursor, &layer->k_factors));
  KVANT_RETURN_IF_ERROR(ReadArray("a rotation", values, cursor, &layer->k_rotation));
  return ReadArray("a rotation", values, cursor, &layer->v_rotation);
}

Status ReadLayerFormats(const KvGeometry& g, ByteCursor* cursor, std::vector<FormatPair>* pairs) {
  uint32_t chosen = 0;
  KVANT_RETURN_IF_ERROR(cursor->ReadNumber("the choice of formats", &chosen));
  for (int i = 0; chosen != 0 && i < g.layers; ++i) {
    FormatPair& pair = pairs->emplace_back();
    KVANT_RETURN_IF_ERROR(ReadFormat(Side::kK, cursor, &pair.k));
    KVANT_RETURN_IF_ERROR(ReadFormat(Side::kV, cursor, &pair.v));
  }
  return Status::Ok();
}

// Name and version before the checksum: another kind or version of file is no damage.
Status CheckEnvelope(std::span<const std::byte> bytes) {
  if (bytes.size() < kMagic.size() ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Status::Corrupt("is no calibration file");
  }
  uint32_t version = 0;
  uint64_t hash = 0;
  if (bytes.size() < kMagic.size() + sizeof version + sizeof hash) {
    return Status::Corrupt("is cut short");
  }
  std::memcpy(&version, bytes.data() + kMagic.size(), sizeof version);
  if (version != kVersion) {
    return Status::Unsupported("is a calibration of version " + std::to_string(version) +
                               "; this build reads version " + std::to_string(kVersion));
  }
  std::memcpy(&hash, bytes.data() + bytes.size() - sizeof hash, sizeof hash);
  if (hash == Xxh64(bytes.first(bytes.size() - sizeof hash))) return Status::Ok();
  return Status::Corrupt("is damaged or cut short: its checksum does not fit its bytes");
}

Result<Calibration> Parse(std::span<const std::byte> bytes) {
  KVANT_RETURN_IF_ERROR(CheckEnvelope(bytes));
  ByteCursor cursor(bytes.first(bytes.size() - sizeof(uint64_t)));
  Calibration c;
  KVANT_RETURN_IF_ERROR(cursor.Skip("the header", 1, kMagic.size() + sizeof kVersion));
  KVANT_RETURN_IF_ERROR(cursor.ReadNumber("the header", &c.model_hash));
  for (int* number :
       {&c.geometry.layers, &c.geometry.kv_heads, &c.geometry.head_dim, &c.geometry.q_heads}) {
    KVANT_RETURN_IF_ERROR(cursor.ReadNumber("the header", number));
  }
  KVANT_RETURN_IF_ERROR(cursor.ReadNumber("the header", &c.tokens));
  if (const Status shape = CheckGeometry(c.geometry); !shape.ok()) {
    return Status::Corrupt(shape.message());
  }
  for (int i = 0; i < c.geometry.layers; ++i) {
    KVANT_RETURN_IF_ERROR(ReadLayer(c.geometry, &cursor, &c.layers.emplace_back()));
  }
  KVANT_RETURN_IF_ERROR(ReadLayerFormats(c.geometry, &cursor, &c.layer_formats));
  if (cursor.remaining() != 0) {
    return Status::Corrupt(std::to_string(cursor.remaining()) + " bytes are left over");
  }
  KVANT_RETURN_IF_ERROR(CheckCalibration(c));
  return c;
}

}  // namespace

Status WriteCalibration(const Calibration& c, const std::string& path) {
  KVANT_RETURN_IF_ERROR(CheckCalibration(c));
  ByteWriter writer;
  writer.Number(kMagic);
  writer.Number(kVersion);
  writer.Number(c.model_hash);
  for (const int number :
       {c.geometry.layers, c.geometry.kv_heads, c.geometry.head_dim, c.geometry.q_heads}) {
    writer.Number(number);
  }
  writer.Number(c.tokens);
  for (const LayerCalibration& layer : c.layers) WriteLayer(layer, &writer);
  writer.Number(uint32_t{c.layer_formats.empty() ? 0u : 1u});
  for (const FormatPair& pair : c.layer_formats) {
    writer.String(FormatSpec(pair.k));
    writer.String(FormatSpec(pair.v));
  }
  writer.Number(Xxh64(writer.bytes()));
  KVANT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  KVANT_RETURN_IF_ERROR(file.Write(writer.bytes()));
  return file.Commit();
}

Result<Calibration> ReadCalibration(const std::string& path) {
  KVANT_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  Result<Calibration> calibration = Parse(file.bytes());
  if (calibration.ok()) return calibration;
  return Status(calibration.status().code(), path + ": " + calibration.status().message());
}

}  // namespace kvant
