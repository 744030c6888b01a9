#include <algorithm>
#include <cmath>

#include "kvant/codec.h"
#include "kvant/explain.h"

namespace kvant {
namespace {

double ExactScale(const Format& format, double min, double max, double extreme) {
  const double centre = 1 << (format.bits - 1);
  switch (format.offset) {
    case Offset::kNone:
      return std::max(std::fabs(min), std::fabs(max)) / (centre - 1);
    case Offset::kExtreme:
      return extreme / -centre;
    default:
      return (max - min) / ((1 << format.bits) - 1);
  }
}

std::vector<uint8_t> Pack(const std::vector<int>& codes, int bits) {
  std::vector<uint8_t> bytes((codes.size() * bits + 7) / 8);
  size_t bit = 0;
  for (int code : codes) {
    for (int i = 0; i < bits; ++i, ++bit) {
      bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] | ((code >> i & 1) << bit % 8));
    }
  }
  return bytes;
}

}  // namespace

Result<GroupExample> ExplainGroup(std::span<const float> values, int bits, Offset offset) {
  GroupExample e;
  e.format = Format{Levels::kUniform, FloatType::kF16, bits, Axis::kToken, 0, offset};
  KVANT_RETURN_IF_ERROR(CheckFormat(e.format, Side::kV, 4));
  KVANT_ASSIGN_OR_RETURN(const CodedGroup coded, EncodeGroup(e.format, values));
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  const float extreme = *std::max_element(
      values.begin(), values.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  e.min = *min;
  e.max = *max;
  e.exact_scale = ExactScale(e.format, *min, *max, extreme);
  e.scale = coded.scale;
  e.zero = coded.zero;
  e.codes = coded.codes;
  e.bytes = Pack(e.codes, bits);
  e.decoded.assign(coded.decoded.begin(), coded.decoded.end());
  for (size_t i = 0; i < values.size(); ++i) {
    e.errors.push_back(e.decoded[i] - values[i]);
    e.max_error = std::max(e.max_error, std::fabs(e.errors.back()));
    e.mean_squared_error += e.errors.back() * e.errors.back() / static_cast<double>(values.size());
  }
  return e;
}

}  // namespace kvant
