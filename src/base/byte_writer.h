// Writes numbers, arrays and strings one behind the other, as ByteCursor reads them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kvant {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

class ByteWriter {
 public:
  template <typename T>
  void Number(const T& number) {
    static_assert(std::is_trivially_copyable_v<T>);
    Bytes(std::as_bytes(std::span(&number, 1)));
  }
  template <typename T>
  void Array(const std::vector<T>& values) {
    Bytes(std::as_bytes(std::span(values)));
  }
  // A 64-bit length and that many bytes.
  void String(std::string_view text) {
    Number(uint64_t{text.size()});
    Bytes(std::as_bytes(std::span(text)));
  }
  void Bytes(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const size_t at = bytes_.size();
    bytes_.resize(at + bytes.size());
    std::memcpy(bytes_.data() + at, bytes.data(), bytes.size());
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace kvant
