// What tests of machine code need of NVIDIA's programs, and a folder for a test's files.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "kvant/meter.h"

namespace kvant {

// Empty when it is made; what it holds goes with it.
class TestFolder {
 public:
  TestFolder() {
    std::string path = std::filesystem::temp_directory_path() / "kvant-sass-test-XXXXXX";
    path_ = mkdtemp(path.data());
    std::filesystem::create_directory(path_ / "tmp");
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  std::string WriteProgram(const std::string& name, const std::string& script) const {
    const std::string path = Write(name, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  // For the meter's own files; it must leave none.
  std::string temporary() const { return path_ / "tmp"; }
  bool IsClean() const { return std::filesystem::is_empty(path_ / "tmp"); }

 private:
  std::filesystem::path path_;
};

inline bool IsFound(std::string_view program) {
  return !program.empty() && !program.ends_with("NOTFOUND");
}

// In a test: skips it, and says why, where the disassembler or the compiler is missing.
#define KVANT_NEED_NVDISASM()   \
  if (!IsFound(KVANT_NVDISASM)) \
  GTEST_SKIP() << "no nvdisasm (scripts/setup installs it): no machine code is read"
#define KVANT_NEED_NVCC() \
  if (!IsFound(KVANT_NVCC)) GTEST_SKIP() << "no nvcc: no kernel is compiled"

#define KVANT_NEED_CUBINS()                            \
  if (std::string_view(KVANT_CUDA_BINARY_DIR).empty()) \
  GTEST_SKIP() << "this build has no cubins: nvcc is missing, or it is no release build"

inline MeterOptions RealPrograms(const TestFolder& folder) {
  MeterOptions options;
  options.temporary_folder = folder.temporary();
  options.nvcc = KVANT_NVCC;
  options.nvdisasm = KVANT_NVDISASM;
  return options;
}

}  // namespace kvant
