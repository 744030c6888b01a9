#include "gguf/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace kvant {
namespace {

Status Failed(const std::string& path, const char* what) {
  return Status::Io(path + ": cannot " + what + ": " + std::generic_category().message(errno));
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Status::Io(path + ": is not a regular file, and would be replaced by one");
  }
  constexpr int kTries = 100;  // names left over from processes that were killed
  const std::string stem = path + ".tmp." + std::to_string(getpid()) + ".";
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const std::string temporary_path = stem + std::to_string(attempt);
    const int fd = open(temporary_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return AtomicFile(path, temporary_path, fd);
    if (errno != EEXIST) break;
  }
  return Failed(path, "be created");
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::move(other.temporary_path_)),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() { Discard(); }

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  constexpr size_t kMaxChunkBytes = size_t{1} << 30;  // one write() takes less than 2 GiB
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), std::min(bytes.size(), kMaxChunkBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed(path_, "be written");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return Status::Ok();
}

Status AtomicFile::Commit() {
  Status status;
  if (fsync(fd_) != 0) {
    status = Failed(path_, "be synced");
  } else if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    status = Failed(path_, "be replaced");
  }
  if (!status.ok()) {
    Discard();
    return status;
  }
  close(std::exchange(fd_, -1));  // synced already: nothing left that could fail
  return status;
}

void AtomicFile::Discard() {
  if (fd_ < 0) return;
  close(std::exchange(fd_, -1));
  unlink(temporary_path_.c_str());
}

}  // namespace kvant
