// The PTX that the build's nvcc made of src/cuda and of this folder.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "ptx/module.h"
#include "ptx/run.h"

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

// Runs a kernel whose parameters are the members of `args`; padding behind the last is none.
template <typename Arguments>
Result<Counts> RunPtx(const PtxModule& module, const std::string& name, const Arguments& args,
                      DeviceMemory* memory, const RunOptions& options) {
  const Result<const Kernel*> kernel = module.Find(name);
  if (!kernel.ok()) return kernel.status();
  const auto bytes = std::as_bytes(std::span(&args, 1));
  return RunKernel(module, **kernel, bytes.first(static_cast<size_t>((*kernel)->param_bytes)),
                   memory, options);
}

template <typename T>
T* DevicePointer(uint64_t address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}
// Allocations for whole vectors, as kernels take them.
template <typename T>
T* Input(DeviceMemory* memory, const char* name,
         const std::vector<std::remove_const_t<T>>& values) {
  return DevicePointer<T>(memory->AddInput(name, std::as_bytes(std::span(values))));
}
template <typename T>
T* InOut(DeviceMemory* memory, const char* name, std::vector<T>* values) {
  return DevicePointer<T>(memory->Add(name, std::as_writable_bytes(std::span(*values))));
}
template <typename T>
T* Output(DeviceMemory* memory, const char* name, std::vector<T>* values) {
  return DevicePointer<T>(memory->AddUndefined(name, std::as_writable_bytes(std::span(*values))));
}

}  // namespace kvant::ptx
