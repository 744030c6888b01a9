// WorkShares: items [0, count) dealt out to threads in contiguous shares of about equal cost.
//
// A thread walks its share from the front, so that it reads memory in order; one that is done takes
// single items from the end of another's, so that a slow core does not hold up the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace kvant {

class WorkShares {
 public:
  // Cuts the items by cost, which is any number >= 0. Not while a thread may Take. Allocates only
  // when there are more threads than ever before.
  void Cut(std::span<const int64_t> costs, int threads);

  // Makes every item available again, to the same threads. Not while a thread may Take.
  void Restart();

  // The next item of a thread, each item once; -1: none is left. Different threads may call it at
  // the same time.
  int Take(int thread);

  // The item that the thread will probably take next; -1: its own share is empty.
  int Peek(int thread) const;

  int threads() const { return threads_; }

 private:
  // What is left of a share: begin in the low 32 bits, end in the high ones.
  struct alignas(64) Share {
    std::atomic<uint64_t> left{0};
    uint64_t whole = 0;
  };
  static int Begin(uint64_t range) { return static_cast<int>(range & 0xffffffffu); }
  static int End(uint64_t range) { return static_cast<int>(range >> 32); }
  static uint64_t Range(int begin, int end) {
    return static_cast<uint64_t>(end) << 32 | static_cast<uint32_t>(begin);
  }

  std::vector<Share> shares_;
  int threads_ = 0;
};

}  // namespace kvant
