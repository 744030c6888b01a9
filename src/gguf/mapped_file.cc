#include "gguf/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace kvant {
namespace {

std::string ErrnoText(int error) { return std::generic_category().message(error); }

Result<std::span<const std::byte>> MapDescriptor(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Status::Io(path + ": cannot be examined: " + ErrnoText(errno));
  if (!S_ISREG(info.st_mode)) return Status::Io(path + ": is not a regular file");
  if (info.st_size == 0) return Status::Corrupt(path + ": is empty");
  if (static_cast<uint64_t>(info.st_size) > SIZE_MAX) {
    return Status::Io(path + ": is larger than the address space");
  }
  const size_t bytes = static_cast<size_t>(info.st_size);
  void* address = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return Status::Io(path + ": cannot be mapped: " + ErrnoText(errno));
  return std::span(static_cast<const std::byte*>(address), bytes);
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must fail below, not wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return Status::NotFound(path + ": no such file");
    return Status::Io(path + ": cannot be opened: " + ErrnoText(errno));
  }
  auto mapped = MapDescriptor(fd, path);
  close(fd);  // the mapping keeps the file
  if (!mapped.ok()) return mapped.status();
  MappedFile file;
  file.bytes_ = *mapped;
  return file;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace kvant
