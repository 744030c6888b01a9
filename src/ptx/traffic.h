// What a kernel asks of global memory, in bytes and in the sectors that a device moves.
#pragma once

#include <cstdint>
#include <vector>

namespace kvant::ptx {

inline constexpr uint64_t kSectorBytes = 32;

// Of the loads, or of the stores, of one allocation.
struct Traffic {
  uint64_t requests = 0;  // warp instructions that touched it
  // Summed over requests, each byte and sector once a request: what one warp instruction moves
  // between memory and registers, were nothing kept between two of them.
  uint64_t request_bytes = 0;
  uint64_t request_sectors = 0;
  // Each byte and sector once a launch: what memory has to deliver at least, were all of it kept.
  uint64_t bytes = 0;
  uint64_t sectors = 0;

  // Bytes moved for one byte used; 0 where nothing was asked for.
  double fetched_per_request_byte() const { return Ratio(request_sectors, request_bytes); }
  double fetched_per_byte() const { return Ratio(sectors, bytes); }

  void operator+=(const Traffic& other);

 private:
  static double Ratio(uint64_t sectors, uint64_t bytes) {
    const auto fetched = static_cast<double>(sectors * kSectorBytes);
    return bytes == 0 ? 0.0 : fetched / static_cast<double>(bytes);
  }
};

// Of the loads from shared memory of a launch. Its 32 banks of 4 bytes give one word each a turn;
// words that several lanes ask for come once.
inline constexpr uint64_t kBanks = 32;
struct SharedTraffic {
  uint64_t requests = 0;  // warp instructions
  uint64_t turns = 0;     // as many as the fullest bank has words to give, summed over requests

  double turns_per_request() const {
    return requests == 0 ? 0.0 : static_cast<double>(turns) / static_cast<double>(requests);
  }
};

// A range of an allocation that one lane touches.
struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Counts the requests to one allocation, whose offset 0 lies at the start of a sector.
class TrafficMeter {
 public:
  explicit TrafficMeter(uint64_t bytes) : touched_(bytes) {}

  // The ranges that the lanes of one warp instruction touch, in any order; they may overlap.
  void Count(std::vector<ByteRange> ranges);
  // Of the launch so far: `sectors` and `bytes` come from all that was touched.
  Traffic Total() const;

 private:
  Traffic sum_;
  std::vector<bool> touched_;  // [bytes]
};

// Turns of one request to shared memory, whose lanes' ranges are all of one size: 32 lanes of up to
// 4 bytes go together, 16 lanes of 8, or 8 of 16.
uint64_t TurnsOf(const std::vector<ByteRange>& ranges);

}  // namespace kvant::ptx
