#include "base/thread_pool.h"

#include <string>
#include <system_error>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvant {
namespace {

// About 50 us of pauses: longer than the serial stretches between the phases of a decode step
// (measured 1 to 10 us), shorter than anything a person notices of a core kept busy.
constexpr int kSpins = 2000;

inline void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Returns once value != seen: spins first, then sleeps.
void AwaitChange(const std::atomic<uint32_t>& value, uint32_t seen) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != seen) return;
    // When both threads sit on one core, the one that spins must let the other finish: without the
    // yield a decode step took 20 ms instead of 5 on one pinned core.
    if (i % 64 == 63) std::this_thread::yield();
    Pause();
  }
  value.wait(seen, std::memory_order_acquire);
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::Create(int threads) {
  if (threads < 1 || threads > 256) {
    return Status::InvalidArgument("threads must be between 1 and 256, got " +
                                   std::to_string(threads));
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  pool->workers_.reserve(static_cast<size_t>(threads) - 1);
  try {
    for (int i = 1; i < threads; ++i) {
      pool->workers_.emplace_back([p = pool.get(), i] { p->Work(i); });
    }
  } catch (const std::system_error& error) {
    return Status::OutOfMemory("cannot start thread " + std::to_string(pool->workers_.size() + 1) +
                               ": " + error.what());
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunErased(Erased function, const void* body) {
  if (workers_.empty()) {
    function(body, 0);
    return;
  }
  function_ = function;
  body_ = body;
  remaining_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  function(body, 0);
  for (uint32_t left; (left = remaining_.load(std::memory_order_acquire)) != 0;) {
    AwaitChange(remaining_, left);
  }
}

void ThreadPool::Work(int index) {
  uint32_t seen = 0;
  for (;;) {
    AwaitChange(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    function_(body_, index);
    if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) remaining_.notify_one();
  }
}

}  // namespace kvant
