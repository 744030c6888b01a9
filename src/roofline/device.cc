#include <algorithm>
#include <iterator>

#include "kvant/roofline.h"

namespace kvant {
namespace {

struct Entry {
  const char* name;
  const char* title;
  double read_tb_per_s;
  double memory_gb;
  double matrix_tflops;  // dense f16
  int multiprocessors;
  double boost_ghz;
  const char* source;
};

// Every multiprocessor issues 4 instructions of 32 lanes a clock.
constexpr double kLanesPerClock = 128;

constexpr char kDataSheet[] = "vendor data sheet; boost clock";
constexpr Entry kEntries[] = {
    {"a100-40gb", "NVIDIA A100 40 GB", 1.55, 40, 312, 108, 1.41,
     "vendor data sheet, 1,555 GB/s rounded down to 1.55 TB/s; boost clock"},
    {"a100-80gb", "NVIDIA A100 SXM 80 GB", 2.039, 80, 312, 108, 1.41, kDataSheet},
    {"a10", "NVIDIA A10", 0.600, 24, 125, 72, 1.695, kDataSheet},
    {"l4", "NVIDIA L4", 0.300, 24, 121, 58, 2.04, kDataSheet},
    {"l40s", "NVIDIA L40S", 0.864, 48, 362, 142, 2.52, kDataSheet},
    {"h100", "NVIDIA H100 SXM 80 GB", 3.35, 80, 989, 132, 1.98, kDataSheet},
    {"h200", "NVIDIA H200 SXM 141 GB", 4.80, 141, 989, 132, 1.98, kDataSheet},
};

}  // namespace

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  for (const Entry& e : kEntries) names.emplace_back(e.name);
  return names;
}

Result<Device> FindDevice(std::string_view name) {
  const auto e = std::find_if(std::begin(kEntries), std::end(kEntries),
                              [&](const Entry& entry) { return name == entry.name; });
  if (e == std::end(kEntries)) {
    std::string message = "unknown device '" + std::string(name) + "'; possible:";
    for (const Entry& entry : kEntries) message += std::string(" ") + entry.name;
    return Status::InvalidArgument(message + " cpu");
  }
  Device device;
  device.name = e->name;
  device.title = e->title;
  device.source = e->source;
  device.read_bytes_per_s = e->read_tb_per_s * 1e12;
  device.memory_bytes = e->memory_gb * 1e9;
  device.matrix_flops_per_s = e->matrix_tflops * 1e12;
  device.lane_instructions_per_s = e->multiprocessors * kLanesPerClock * e->boost_ghz * 1e9;
  return device;
}

}  // namespace kvant
