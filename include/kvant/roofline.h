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
  double matrix_flops_per_s = 0;       // dense f16 products, an FMA counts as two
  double lane_instructions_per_s = 0;  // issue limit: 4 schedulers x 32 lanes x SMs x clock

  // Lane instructions that fit into the time of reading one byte; 0 if unknown.
  double IssueBudgetPerByte() const { return lane_instructions_per_s / read_bytes_per_s; }
};

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
