// Fiber: a stack and a place in the code, by ucontext, announced to AddressSanitizer.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace kvant::simt {

class Fiber {
 public:
  Fiber();

  // Begins anew with `body`; whatever the fiber ran before is abandoned.
  void Start(const std::function<void()>* body);
  // From outside: runs the fiber until it yields or its body returns.
  void Resume();
  // From inside: back to Resume().
  void Yield();

 private:
  static void Enter(unsigned low, unsigned high);

  static constexpr size_t kStackBytes = 256 * 1024;
  std::unique_ptr<std::byte[]> stack_;
  ucontext_t inside_{}, outside_{};
  const std::function<void()>* body_ = nullptr;
  void* inside_fake_ = nullptr;
  void* outside_fake_ = nullptr;
  const void* outside_bottom_ = nullptr;
  size_t outside_bytes_ = 0;
};

}  // namespace kvant::simt
