// LayerStatistics: what one layer's queries, keys and values of some sequences amount to, and the
// calibration that follows. kvant/calibrate.h tells what is measured.
// Thread rules: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "calibrate/level_fit.h"
#include "kvant/calibration.h"
#include "kvant/status.h"
#include "model/config.h"
#include "model/llama.h"

namespace kvant {

class LayerStatistics {
 public:
  // k_balance: [kv_heads][head_dim] of the layer; config outlives it.
  LayerStatistics(const ModelConfig& config, std::span<const float> k_balance);

  // One whole sequence from its start. REQUIRES: more rows than kSinkTokens.
  void Add(const LayerVectors& sequence);

  // name: of the layer, for the message.
  Result<LayerCalibration> Finish(const std::string& name) const;

  static constexpr int kSinkTokens = 4;  // left out of everything that is stored

 private:
  struct Head {                                  // one KV head
    std::vector<float> largest_k;                // [head_dim]
    std::vector<double> q_products, v_products;  // [head_dim][head_dim]
  };
  void AddHead(const LayerVectors& sequence, int kv_head);
  // Sum over queries of the squared probability of each token: [rows].
  std::vector<float> SquaredMass(const LayerVectors& sequence, int kv_head) const;
  void AddKeyValues(const LayerVectors& sequence, int kv_head);
  void AddValueValues(const LayerVectors& sequence, int kv_head, const std::vector<float>& mass);
  std::vector<float> Factors() const;
  std::vector<float> RotationOf(const std::vector<double> Head::*products) const;

  const ModelConfig& config_;
  std::vector<float> to_key_, to_query_, signs_;  // multipliers, as a cache has them
  std::vector<Head> heads_;
  ValueHistogram k_values_, v_values_;
};

}  // namespace kvant
