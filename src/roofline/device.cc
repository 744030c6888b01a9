#include <algorithm>
#include <cctype>
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
  int target;
  int multiprocessors;
  double boost_ghz;
  const char* source;
  const char* unverified;
};

constexpr char kDataSheet[] = "vendor data sheet; boost clock";
constexpr Entry kEntries[] = {
    {"a100-40gb", "NVIDIA A100 40 GB", 1.55, 40, 312, 80, 108, 1.41,
     "vendor data sheet, 1,555 GB/s rounded down to 1.55 TB/s; boost clock", ""},
    {"a100-80gb", "NVIDIA A100 SXM 80 GB", 2.039, 80, 312, 80, 108, 1.41, kDataSheet, ""},
    {"a10", "NVIDIA A10", 0.600, 24, 125, 86, 72, 1.695, kDataSheet, ""},
    {"l4", "NVIDIA L4", 0.300, 24, 121, 89, 58, 2.04, kDataSheet, ""},
    {"l40s", "NVIDIA L40S", 0.864, 48, 362, 89, 142, 2.52, kDataSheet, ""},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 1.008, 24, 165, 89, 128, 2.52,
     "vendor data sheet; boost clock; matrix rate with f32 sums", "matrix rate"},
    {"h100", "NVIDIA H100 SXM 80 GB", 3.35, 80, 989, 90, 132, 1.98, kDataSheet, ""},
    {"h200", "NVIDIA H200 SXM 141 GB", 4.80, 141, 989, 90, 132, 1.98, kDataSheet, ""},
    {"b200", "NVIDIA B200 180 GB", 8.0, 180, 2250, 100, 148, 1.965,
     "vendor announcement; 7.7 to 8 TB/s are quoted", "bandwidth, multiprocessors, clock"},
};

}  // namespace

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  for (const Entry& e : kEntries) names.emplace_back(e.name);
  return names;
}

Result<Device> FindDevice(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto e = std::find_if(std::begin(kEntries), std::end(kEntries),
                              [&](const Entry& entry) { return lower == entry.name; });
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
  device.unverified = e->unverified;
  device.target = e->target;
  device.multiprocessors = e->multiprocessors;
  device.clock_hz = e->boost_ghz * 1e9;
  return device;
}

PipeLanes LanesOf(int target) {
  PipeLanes lanes;
  if (target == 80) lanes.fma = 64;
  if (target == 86 || target == 89) lanes.half2 = 64;
  return lanes;
}

}  // namespace kvant
