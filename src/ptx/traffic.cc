#include "ptx/traffic.h"

#include <algorithm>
#include <array>
#include <set>

namespace kvant::ptx {

void Traffic::operator+=(const Traffic& other) {
  requests += other.requests;
  request_bytes += other.request_bytes;
  request_sectors += other.request_sectors;
  bytes += other.bytes;
  sectors += other.sectors;
}

void TrafficMeter::Count(std::vector<ByteRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.offset < b.offset; });
  ++sum_.requests;
  uint64_t bytes_end = 0;    // all bytes below are counted
  uint64_t sectors_end = 0;  // all sectors below are counted
  for (const ByteRange& range : ranges) {
    const uint64_t end = range.offset + range.bytes;
    for (uint64_t at = std::max(range.offset, bytes_end); at < end; ++at) touched_[at] = true;
    sum_.request_bytes += end - std::min(end, std::max(range.offset, bytes_end));
    bytes_end = std::max(bytes_end, end);
    const uint64_t last = (end + kSectorBytes - 1) / kSectorBytes;
    const uint64_t first = std::max(range.offset / kSectorBytes, sectors_end);
    sum_.request_sectors += last - std::min(last, first);
    sectors_end = std::max(sectors_end, last);
  }
}

Traffic TrafficMeter::Total() const {
  Traffic total = sum_;
  uint64_t sectors_end = 0;
  for (uint64_t i = 0; i < touched_.size(); ++i) {
    if (!touched_[i]) continue;
    ++total.bytes;
    if (i / kSectorBytes < sectors_end) continue;
    ++total.sectors;
    sectors_end = i / kSectorBytes + 1;
  }
  return total;
}

uint64_t TurnsOf(const std::vector<ByteRange>& ranges) {
  constexpr uint64_t kWord = 4;
  uint64_t turns = 0;
  size_t next = 0;
  while (next < ranges.size()) {
    std::array<std::set<uint64_t>, kBanks> words;
    const uint64_t lanes = kBanks * kWord / std::max(kWord, ranges[next].bytes);
    const size_t end = std::min(ranges.size(), next + static_cast<size_t>(lanes));
    for (; next < end; ++next) {
      const ByteRange& range = ranges[next];
      for (uint64_t w = range.offset / kWord; w * kWord < range.offset + range.bytes; ++w) {
        words[w % kBanks].insert(w);
      }
    }
    size_t fullest = 0;
    for (const std::set<uint64_t>& bank : words) fullest = std::max(fullest, bank.size());
    turns += fullest;
  }
  return turns;
}

}  // namespace kvant::ptx
