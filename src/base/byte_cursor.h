// Walks untrusted bytes front to back; never past their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "kvant/status.h"

namespace kvant {

// `what` completes "the file ends inside ..."; failed reads leave the position where it was.
class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  // The bytes from an earlier position to here.
  std::span<const std::byte> Since(size_t start) const {
    return bytes_.subspan(start, position_ - start);
  }

  template <typename T>
  Status ReadNumber(std::string_view what, T* number) {
    if (remaining() < sizeof(T)) return Ends(what);
    std::memcpy(number, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return Status::Ok();
  }

  // count elements of element_bytes each; the product may overflow, which fails too.
  Status Skip(std::string_view what, uint64_t count, uint64_t element_bytes) {
    KVANT_RETURN_IF_ERROR(CheckFits(what, count, element_bytes));
    position_ += static_cast<size_t>(count * element_bytes);
    return Status::Ok();
  }

  // Whether count elements of at least element_bytes (> 0) each can still follow.
  Status CheckFits(std::string_view what, uint64_t count, uint64_t element_bytes) const {
    if (count <= remaining() / element_bytes) return Status::Ok();
    return Status::Corrupt(std::string(what) + " claims " + std::to_string(count) +
                           " elements, but only " + std::to_string(remaining()) +
                           " bytes are left in the file");
  }

  // A 64-bit length and that many bytes, as a view.
  Status ReadString(std::string_view what, uint64_t max_bytes, std::string_view* text) {
    const size_t start = position_;
    uint64_t bytes = 0;
    KVANT_RETURN_IF_ERROR(ReadNumber(what, &bytes));
    Status status;
    if (bytes > max_bytes) {
      status = Status::Corrupt(std::string(what) + " claims a length of " + std::to_string(bytes) +
                               " bytes, more than the " + std::to_string(max_bytes) + " allowed");
    } else if (bytes > remaining()) {
      status = Ends(what);
    } else {
      *text = {reinterpret_cast<const char*>(bytes_.data() + position_),
               static_cast<size_t>(bytes)};
      position_ += static_cast<size_t>(bytes);
      return Status::Ok();
    }
    position_ = start;
    return status;
  }

 private:
  Status Ends(std::string_view what) const {
    return Status::Corrupt("the file ends after " + std::to_string(bytes_.size()) +
                           " bytes, inside " + std::string(what));
  }

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace kvant
