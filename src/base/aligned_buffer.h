// A block of bytes aligned to 64 or more, whose allocation may fail without throwing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "kvant/status.h"

namespace kvant {

inline constexpr size_t kAlignment = 64;

constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// How blocks are obtained. Tests replace it to make the n-th allocation fail; never null.
using AllocateFn = void* (*)(size_t alignment, size_t bytes);
inline AllocateFn g_allocate = [](size_t alignment, size_t bytes) -> void* {
  return std::aligned_alloc(alignment, bytes);
};

// Owns its bytes; movable, not copyable. Contents start uninitialised.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~AlignedBuffer() { std::free(data_); }

  // kOutOfMemory names the size. bytes may be 0. alignment: a power of two, 64 or more.
  static Result<AlignedBuffer> Create(size_t bytes, size_t alignment = kAlignment) {
    AlignedBuffer buffer;
    if (bytes > SIZE_MAX - alignment) {
      return Status::OutOfMemory("cannot allocate " + std::to_string(bytes) + " bytes");
    }
    if (bytes != 0) {
      buffer.data_ = static_cast<std::byte*>(g_allocate(alignment, RoundUp(bytes, alignment)));
      if (buffer.data_ == nullptr) {
        return Status::OutOfMemory("cannot allocate " + std::to_string(bytes) + " bytes");
      }
    }
    buffer.bytes_ = bytes;
    return buffer;
  }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  void swap(AlignedBuffer& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace kvant
