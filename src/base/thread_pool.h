// A fork-join pool: the caller and N-1 workers run one function, then all meet.
//
// Workers spin for a bounded time after a job, then sleep on a futex. Barriers that always sleep
// cost 25 us each, libgomp up to 1 ms on busy cores; a decode step of 30 layers has about 200
// joins.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "kvant/status.h"

namespace kvant {

class ThreadPool {
 public:
  // threads >= 1 counts the caller. kInvalidArgument outside [1, 256]; kOutOfMemory when the system
  // refuses a thread.
  static Result<std::unique_ptr<ThreadPool>> Create(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(thread_index) once on every thread, 0 being the caller, and returns when all have
  // finished. Not re-entrant; one caller at a time. body must not throw.
  template <typename Body>
  void Run(const Body& body) {
    RunErased([](const void* b, int index) { (*static_cast<const Body*>(b))(index); }, &body);
  }

  // Splits [0, count) into contiguous parts, one a thread, and calls body(begin, end) where the
  // part is not empty.
  template <typename Body>
  void ParallelFor(int64_t count, const Body& body) {
    if (count <= 1 || workers_.empty()) {
      if (count > 0) body(int64_t{0}, count);
      return;
    }
    const int n = threads();
    Run([&](int index) {
      const int64_t begin = count * index / n, end = count * (index + 1) / n;
      if (begin < end) body(begin, end);
    });
  }

 private:
  using Erased = void (*)(const void* body, int index);
  ThreadPool() = default;
  void RunErased(Erased function, const void* body);
  void Work(int index);

  std::vector<std::thread> workers_;
  Erased function_ = nullptr;
  const void* body_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};  // bumped once a job; workers wait on it
  alignas(64) std::atomic<uint32_t> remaining_{0};   // workers still inside the job
  std::atomic<bool> stop_{false};
};

}  // namespace kvant
