// A file that appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kvant/status.h"

namespace kvant {

// Create, Write any number of times, Commit. Destroyed without Commit, nothing is left behind.
class AtomicFile {
 public:
  // Opens a new file beside `path`. Errors of all calls are kIo and name path and cause.
  static Result<AtomicFile> Create(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status Write(std::span<const std::byte> bytes);

  // Syncs and renames over path. Called last; after an error nothing is left behind.
  Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary_path, int fd)
      : path_(std::move(path)), temporary_path_(std::move(temporary_path)), fd_(fd) {}
  void Discard();

  std::string path_;
  std::string temporary_path_;
  int fd_ = -1;  // -1 once committed, discarded or moved from
};

}  // namespace kvant
