#include "kvant/calibration.h"

#include <algorithm>
#include <cmath>

#include "base/xxh64.h"

namespace kvant {
namespace {

// f32 sums of up to 1,024 products of rotations that were rounded to f32 stay far below.
constexpr double kOrthonormal = 1e-3;

Status CheckLevels(const FittedLevels& fitted, int bits, const std::string& name) {
  const std::string what = name + " levels of " + std::to_string(bits) + " bits";
  if (fitted.levels.size() != size_t{1} << bits) {
    return Status::Corrupt(what + " are " + std::to_string(fitted.levels.size()));
  }
  if (!(fitted.sigma > 0) || !std::isfinite(fitted.sigma)) {
    return Status::Corrupt(what + " have a unit of " + std::to_string(fitted.sigma));
  }
  if (fitted.levels[0] == -128 ||
      std::adjacent_find(fitted.levels.begin(), fitted.levels.end(),
                         [](int a, int b) { return a >= b; }) != fitted.levels.end()) {
    return Status::Corrupt(what + " do not ascend from -127 on");
  }
  return Status::Ok();
}

Status CheckFactors(const std::vector<float>& factors, size_t count, const std::string& name) {
  if (factors.size() != count) {
    return Status::Corrupt(name + " channel factors are " + std::to_string(factors.size()) +
                           " where the shape asks for " + std::to_string(count));
  }
  for (const float f : factors) {
    if (f >= 0x1p-20f && f <= 0x1p20f) continue;
    return Status::Corrupt(name + " channel factor of " + std::to_string(f) +
                           " is not between 2^-20 and 2^20");
  }
  return Status::Ok();
}

Status CheckRotation(const std::vector<float>& rotation, const KvGeometry& g,
                     const std::string& name) {
  const auto d = static_cast<size_t>(g.head_dim);
  if (rotation.size() != static_cast<size_t>(g.kv_heads) * d * d) {
    return Status::Corrupt(name + " rotation has " + std::to_string(rotation.size()) + " values");
  }
  for (size_t first = 0; first < rotation.size(); first += d * d) {
    for (size_t i = 0; i < d; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double dot = 0;
        for (size_t c = 0; c < d; ++c) {
          dot += static_cast<double>(rotation[first + i * d + c]) * rotation[first + j * d + c];
        }
        if (std::fabs(dot - (i == j ? 1.0 : 0.0)) < kOrthonormal) continue;
        return Status::Corrupt(name + " rotation is not orthonormal");
      }
    }
  }
  return Status::Ok();
}

Status CheckLayer(const LayerCalibration& layer, const KvGeometry& g, const std::string& name) {
  for (int i = 0; i < kFittedWidths; ++i) {
    const auto at = static_cast<size_t>(i);
    KVANT_RETURN_IF_ERROR(CheckLevels(layer.k_levels[at], kLeastFittedBits + i, name + " K"));
    KVANT_RETURN_IF_ERROR(CheckLevels(layer.v_levels[at], kLeastFittedBits + i, name + " V"));
  }
  const size_t channels = static_cast<size_t>(g.kv_heads) * static_cast<size_t>(g.head_dim);
  KVANT_RETURN_IF_ERROR(CheckFactors(layer.k_factors, channels, name + " K"));
  KVANT_RETURN_IF_ERROR(CheckRotation(layer.k_rotation, g, name + " K"));
  return CheckRotation(layer.v_rotation, g, name + " V");
}

}  // namespace

Status CheckCalibration(const Calibration& calibration) {
  const KvGeometry& g = calibration.geometry;
  if (const Status shape = CheckGeometry(g); !shape.ok()) return Status::Corrupt(shape.message());
  const auto layers = static_cast<size_t>(g.layers);
  if (calibration.layers.size() != layers) {
    return Status::Corrupt(std::to_string(calibration.layers.size()) +
                           " layers are calibrated of " + std::to_string(layers));
  }
  for (size_t i = 0; i < layers; ++i) {
    KVANT_RETURN_IF_ERROR(CheckLayer(calibration.layers[i], g, "layer " + std::to_string(i)));
  }
  if (calibration.layer_formats.empty()) return Status::Ok();
  if (calibration.layer_formats.size() != layers) {
    return Status::Corrupt("formats are chosen for " +
                           std::to_string(calibration.layer_formats.size()) + " layers of " +
                           std::to_string(layers));
  }
  for (const FormatPair& pair : calibration.layer_formats) {
    for (const Status& status :
         {CheckFormat(pair.k, Side::kK, g.head_dim), CheckFormat(pair.v, Side::kV, g.head_dim)}) {
      if (!status.ok()) return Status::Corrupt(status.message());
    }
  }
  return Status::Ok();
}

Status CheckCalibratedModel(const Calibration& calibration, uint64_t model_hash) {
  if (calibration.model_hash == model_hash) return Status::Ok();
  return Status::InvalidArgument("the calibration was made for another model: its file hash is " +
                                 HashText(calibration.model_hash) + ", this model's " +
                                 HashText(model_hash));
}

}  // namespace kvant
