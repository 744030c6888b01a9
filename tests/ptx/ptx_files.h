// The PTX that the build's nvcc made of src/cuda and of this folder.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "ptx/module.h"

namespace kvant::ptx {

// KVANT_CUDA_BINARY_DIR: empty where nvcc is missing, or the build is not the one that has them.
inline constexpr bool kHasPtx = sizeof(KVANT_CUDA_BINARY_DIR) > 1;
#define KVANT_SKIP_WITHOUT_PTX()                                                         \
  if (!::kvant::ptx::kHasPtx) {                                                          \
    GTEST_SKIP() << "no PTX in this build (nvcc is missing, or it is no release build)"; \
  }

inline std::string PtxText(const std::string& name) {
  std::ifstream file(KVANT_CUDA_BINARY_DIR "/" + name + ".ptx");
  EXPECT_TRUE(file.is_open()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Parsed once a program.
inline const PtxModule& PtxOf(const std::string& name) {
  static std::map<std::string, PtxModule> modules;
  const auto found = modules.find(name);
  if (found != modules.end()) return found->second;
  Result<PtxModule> module = PtxModule::Parse(PtxText(name));
  EXPECT_TRUE(module.ok()) << name << ": " << module.status().message();
  return modules.emplace(name, module.ok() ? *std::move(module) : PtxModule{}).first->second;
}

}  // namespace kvant::ptx
