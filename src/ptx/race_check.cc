#include "ptx/race_check.h"

#include <bit>

namespace kvant::ptx {
namespace {

std::string RaceText(const char* what, int other, const char* did, uint64_t offset) {
  return std::string("a race: it ") + what + " offset " + std::to_string(offset) +
         " of 'shared memory', which warp " + std::to_string(other) + " " + did +
         " since the last barrier";
}

}  // namespace

std::optional<std::string> RaceCheck::Read(int warp, uint64_t offset, uint64_t bytes) {
  for (uint64_t at = offset; at < offset + bytes; ++at) {
    Byte& byte = bytes_[at];
    if (byte.write_epoch == epoch_ && byte.writer != warp) {
      return RaceText("reads", byte.writer, "wrote", at);
    }
    if (byte.read_epoch != epoch_) byte.readers = 0;
    byte.read_epoch = epoch_;
    byte.readers |= uint32_t{1} << warp;
  }
  return std::nullopt;
}

std::optional<std::string> RaceCheck::Write(int warp, uint64_t offset, uint64_t bytes) {
  for (uint64_t at = offset; at < offset + bytes; ++at) {
    Byte& byte = bytes_[at];
    if (byte.write_epoch == epoch_ && byte.writer != warp) {
      return RaceText("writes", byte.writer, "wrote", at);
    }
    const uint32_t readers = byte.read_epoch == epoch_ ? byte.readers : 0;
    const uint32_t others = readers & ~(uint32_t{1} << warp);
    if (others != 0) return RaceText("writes", std::countr_zero(others), "read", at);
    byte.write_epoch = epoch_;
    byte.writer = warp;
  }
  return std::nullopt;
}

}  // namespace kvant::ptx
