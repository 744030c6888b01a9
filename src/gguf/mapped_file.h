// A whole file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "kvant/status.h"

namespace kvant {

// Move-only; the bytes stay at one address until destruction, moves included. A file that another
// process shortens while it is mapped raises SIGBUS on access: replace files by rename instead.
class MappedFile {
 public:
  // kNotFound when there is no such file, kCorrupt when it is empty, kIo otherwise; each names
  // path.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace kvant
