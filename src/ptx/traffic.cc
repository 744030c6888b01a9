#include "ptx/traffic.h"

#include <algorithm>

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

}  // namespace kvant::ptx
