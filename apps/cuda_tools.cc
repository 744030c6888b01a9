#include "cuda_tools.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "failure.h"
#include "options.h"

namespace kvant::cli {
namespace {

constexpr char kToolkitFolder[] = "/usr/local/cuda/bin";

bool IsProgram(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

std::vector<std::filesystem::path> PathFolders() {
  const char* const path = std::getenv("PATH");
  std::vector<std::filesystem::path> folders;
  for (const std::string& folder : SplitList(path == nullptr ? "" : path, ':')) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  folders.emplace_back(kToolkitFolder);
  return folders;
}

// The first of these that there is; empty: none.
std::string FindIn(const std::vector<std::filesystem::path>& folders, const char* name) {
  for (const std::filesystem::path& folder : folders) {
    if (IsProgram(folder / name)) return folder / name;
  }
  return "";
}

}  // namespace

std::string FindNvcc() {
  std::string path = FindIn(PathFolders(), "nvcc");
  if (path.empty()) {
    throw Failure(
        kExitFailed,
        "no nvcc on the PATH or in /usr/local/cuda/bin: install the CUDA toolkit, or meter a "
        "cubin");
  }
  return path;
}

std::string FindNvdisasm() {
  std::vector<std::filesystem::path> folders = PathFolders();
  std::error_code ignored;
  // build/PRESET/kvant
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  folders.push_back(self.parent_path().parent_path().parent_path() / ".venv" / "bin");
  std::string path = FindIn(folders, "nvdisasm");
  if (path.empty()) {
    throw Failure(
        kExitFailed,
        "no nvdisasm on the PATH, in /usr/local/cuda/bin or in .venv: scripts/setup installs "
        "it, and so does pip install nvidia-cuda-nvdisasm");
  }
  return path;
}

std::string TemporaryParent() {
  const char* const folder = std::getenv("TMPDIR");
  return folder == nullptr || *folder == '\0' ? "/tmp" : folder;
}

}  // namespace kvant::cli
