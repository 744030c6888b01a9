// Models in files, for tests: each is loaded when it is first asked for. ctest starts a process for
// every test, so what a test does not use must not be loaded.
#pragma once

#include <optional>

#include "kvant/model.h"

namespace kvant {

template <const char* kPath>
const Model& LoadOnce(bool float_activations) {
  static std::optional<Model> models[2];
  std::optional<Model>& model = models[float_activations ? 1 : 0];
  if (!model) model = Model::Load(kPath, {.float_activations = float_activations}).value();
  return *model;
}

}  // namespace kvant
