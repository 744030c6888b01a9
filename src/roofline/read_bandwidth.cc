#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "base/aligned_buffer.h"
#include "base/huge_pages.h"
#include "base/thread_pool.h"
#include "kvant/roofline.h"

namespace kvant {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kStepLines = 2;
constexpr int64_t kMinBufferBytes = int64_t{128} << 20;
constexpr int64_t kMaxBufferBytes = int64_t{1} << 30;
constexpr int kCacheMultiple = 4;  // of the last-level cache: no pass finds what the last one left
constexpr int kPasses = 15;

// All last-level caches of the machine. sysconf knows one number only, and on some machines a wrong
// one, so it is asked last.
int64_t LastLevelCacheBytes() {
  int64_t total = 0;
  std::set<std::string> seen;  // cores that share a cache name the same list
  for (int cpu = 0;; ++cpu) {
    const std::string cache =
        "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/";
    std::ifstream size_file(cache + "size"), cores_file(cache + "shared_cpu_list");
    int64_t kib = 0;
    std::string cores;
    if (!(size_file >> kib) || !(cores_file >> cores)) break;
    if (seen.insert(cores).second) total += kib << 10;
  }
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (total == 0) total = std::max<int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
  return total;
}

int64_t BufferBytes(int threads) {
  const int64_t wanted =
      std::clamp(LastLevelCacheBytes() * kCacheMultiple, kMinBufferBytes, kMaxBufferBytes);
  const int64_t unit = kLineBytes * kStepLines * threads;  // whole steps for every thread
  return (wanted + unit - 1) / unit * unit;
}

// The sum of all 64-bit words; lines must be whole steps. The additions of a step are independent,
// so the loads wait for memory and nothing else; 8 vector registers hold the sums.
uint64_t SumLines(const uint64_t* words, int64_t lines) {
  constexpr int kWords = static_cast<int>(kLineBytes / sizeof(uint64_t)) * kStepLines;
  uint64_t sums[kWords] = {};
  for (int64_t line = 0; line < lines; line += kStepLines, words += kWords) {
    for (int i = 0; i < kWords; ++i) sums[i] += words[i];
  }
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

Result<ReadBandwidth> MeasureReadBandwidth(int threads) {
  KVANT_ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool, ThreadPool::Create(threads));
  ReadBandwidth result;
  result.threads = threads;
  result.buffer_bytes = BufferBytes(threads);
  result.passes = kPasses;
  KVANT_ASSIGN_OR_RETURN(
      AlignedBuffer buffer,
      AlignedBuffer::Create(static_cast<size_t>(result.buffer_bytes), kHugePageBytes));
  uint64_t* const words = buffer.as<uint64_t>();
  // With small pages, address translation would be measured too.
  AdviseHugePages(buffer.data(), buffer.bytes());
  const int64_t lines = result.buffer_bytes / kLineBytes / threads;
  const int64_t words_per_thread = lines * kLineBytes / static_cast<int64_t>(sizeof(uint64_t));
  // Written by the thread that will read it: distinct physical pages, on its own memory node.
  pool->Run([&](int t) {
    std::memset(words + t * words_per_thread, 1, static_cast<size_t>(lines * kLineBytes));
  });
  std::atomic<uint64_t> sink{0};  // keeps the sums alive
  std::vector<double> rates;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    pool->Run([&](int t) { sink += SumLines(words + t * words_per_thread, lines); });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    rates.push_back(static_cast<double>(result.buffer_bytes) / elapsed.count());
  }
  std::sort(rates.begin(), rates.end());
  result.best_bytes_per_s = rates.back();
  result.median_bytes_per_s = rates[rates.size() / 2];
  return result;
}

Result<Device> MeasureThisMachine(int threads) {
  KVANT_ASSIGN_OR_RETURN(const ReadBandwidth measured, MeasureReadBandwidth(threads));
  Device device;
  device.name = "cpu";
  device.title =
      "this machine, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  device.source = "best of " + std::to_string(measured.passes) + " streaming reads, just measured";
  device.read_bytes_per_s = measured.best_bytes_per_s;
  device.memory_bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return device;
}

}  // namespace kvant
