#include "ptx/region.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvant::ptx {

Region::Region(std::string name, std::span<std::byte> bytes, Options options)
    : name_(std::move(name)), bytes_(bytes), options_(options) {
  if (options.is_undefined) defined_.resize(bytes.size());
  if (!options.is_metered) return;
  loads_.emplace(bytes.size());
  stores_.emplace(bytes.size());
}

std::optional<std::string> Region::CheckRange(const char* verb, uint64_t offset,
                                              uint64_t bytes) const {
  const auto access = [&] {
    return std::string(verb) + " of " + std::to_string(bytes) + " bytes at offset " +
           std::to_string(static_cast<int64_t>(offset)) + " of '" + name_ + "'";
  };
  if (offset % bytes != 0) return access() + " is not aligned";
  if (bytes > bytes_.size() || offset > bytes_.size() - bytes) {
    return access() + " passes its end, " + std::to_string(bytes_.size());
  }
  return std::nullopt;
}

std::optional<std::string> Region::CheckRead(uint64_t offset, uint64_t bytes) const {
  if (auto fault = CheckRange("a read", offset, bytes)) return fault;
  if (defined_.empty()) return std::nullopt;
  for (uint64_t at = offset; at < offset + bytes; ++at) {
    if (defined_[at]) continue;
    return "a read of offset " + std::to_string(at) + " of '" + name_ +
           "', where nothing was written or a copy is under way";
  }
  return std::nullopt;
}

std::optional<std::string> Region::CheckWrite(uint64_t offset, uint64_t bytes) const {
  if (options_.is_read_only) return "a write to '" + name_ + "', which is read-only";
  return CheckRange("a write", offset, bytes);
}

void Region::Read(uint64_t offset, std::span<std::byte> out) const {
  std::memcpy(out.data(), bytes_.data() + offset, out.size());
}

void Region::Write(uint64_t offset, std::span<const std::byte> in) {
  std::memcpy(bytes_.data() + offset, in.data(), in.size());
  if (defined_.empty()) return;
  std::fill_n(defined_.begin() + static_cast<ptrdiff_t>(offset), in.size(), true);
}

void Region::Poison(uint64_t offset, uint64_t bytes) {
  std::fill_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), bytes, std::byte{0xff});
  if (defined_.empty()) return;
  std::fill_n(defined_.begin() + static_cast<ptrdiff_t>(offset), bytes, false);
}

}  // namespace kvant::ptx
