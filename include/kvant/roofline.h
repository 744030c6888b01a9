// Roofline: what a device can do, and what this machine's memory really gives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

// The limits of one device that decide how long a decode step takes. A rate of 0 is unknown.
struct Device {
  std::string name;    // as on the command line: "a100-40gb"
  std::string title;   // for people: "NVIDIA A100 SXM 40 GB"
  std::string source;  // where the figures come from
  double read_bytes_per_s = 0;
  double memory_bytes = 0;
  double matrix_flops_per_s = 0;  // dense f16 products, an FMA counts as two
  std::string unverified;         // the figures that no data sheet was at hand for; or empty

  int target = 0;           // machine code: 80 of sm_80; 0: no GPU, and all below is unknown
  int multiprocessors = 0;  // of 4 schedulers with 32 lanes each
  double clock_hz = 0;      // boost

  // How loads and instructions overlap: together they take (a^p + b^p)^(1/p). 0: perfectly, the
  // longer one alone, which is a bound and no measurement.
  double overlap_power = 0;
  double weight_bytes_per_s = 0;  // at which packed weights are multiplied; 0: as fast as read

  // Lane instructions a second that `lanes` lanes of every multiprocessor take.
  double LaneRate(int lanes) const { return multiprocessors * clock_hz * lanes; }
  // Lane instructions that fit into the time of reading one byte, of all kinds together and of one
  // pipe (PipeLanes below); 0 if unknown. Derived from the device's own figures: what fits differs
  // tenfold between devices.
  double IssueBudgetPerByte() const { return LaneRate(128) / read_bytes_per_s; }
  double BudgetPerByte(int lanes) const { return LaneRate(lanes) / read_bytes_per_s; }
};

// Lanes of a multiprocessor that take an instruction of a kind each clock.
struct PipeLanes {
  int issue = 128;  // all kinds together
  int alu = 64;     // integers and logic
  int fma = 128;
  int half2 = 128;
  int xu = 16;      // exponentials, conversions
  int shared = 32;  // words of shared memory, where no two lanes meet in a bank
};
// Of a GPU of that machine code (CUDA C++ Programming Guide, "Throughput of Native Arithmetic
// Instructions", where a packed half counts as two results). 10.x was not verified.
PipeLanes LanesOf(int target);

// "a100-40gb", …: the devices of the table; this machine, "cpu", is not in it.
std::vector<std::string> DeviceNames();

// A device of the table. kInvalidArgument lists the names.
Result<Device> FindDevice(std::string_view name);

// What streaming reads of memory give on this machine.
struct ReadBandwidth {
  double best_bytes_per_s = 0;  // of all passes
  double median_bytes_per_s = 0;
  int threads = 0;
  int64_t buffer_bytes = 0;  // 4 times all last-level caches, but 128 MiB to 1 GiB
  int passes = 0;
};

// Sums a buffer that no cache holds, every 64-byte line once a pass, each thread its own part.
// Takes a fraction of a second. kInvalidArgument for threads outside [1, 256]; kOutOfMemory.
Result<ReadBandwidth> MeasureReadBandwidth(int threads);

// This machine as a device: measured read bandwidth, installed memory, arithmetic unknown.
Result<Device> MeasureThisMachine(int threads);

}  // namespace kvant
