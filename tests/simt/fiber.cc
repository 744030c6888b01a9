#include "simt/fiber.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define KVANT_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVANT_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef KVANT_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace kvant::simt {
namespace {

void AnnounceSwitch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* bottom,
                    [[maybe_unused]] size_t bytes) {
#ifdef KVANT_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
#endif
}
void FinishSwitch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** bottom,
                  [[maybe_unused]] size_t* bytes) {
#ifdef KVANT_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fake_stack, bottom, bytes);
#endif
}

}  // namespace

Fiber::Fiber() : stack_(new std::byte[kStackBytes]) {}

void Fiber::Start(const std::function<void()>* body) {
#ifdef KVANT_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(stack_.get(), kStackBytes);  // of frames that were abandoned
#endif
  body_ = body;
  inside_fake_ = nullptr;
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::Enter), 2, static_cast<unsigned>(self),
              static_cast<unsigned>(self >> 32));
}

void Fiber::Enter(unsigned low, unsigned high) {
  auto* self =
      reinterpret_cast<Fiber*>(static_cast<uintptr_t>(low) | (static_cast<uintptr_t>(high) << 32));
  FinishSwitch(nullptr, &self->outside_bottom_, &self->outside_bytes_);
  (*self->body_)();
  AnnounceSwitch(nullptr, self->outside_bottom_, self->outside_bytes_);
  setcontext(&self->outside_);
}

void Fiber::Resume() {
  AnnounceSwitch(&outside_fake_, stack_.get(), kStackBytes);
  swapcontext(&outside_, &inside_);
  FinishSwitch(outside_fake_, nullptr, nullptr);
}

void Fiber::Yield() {
  AnnounceSwitch(&inside_fake_, outside_bottom_, outside_bytes_);
  swapcontext(&inside_, &outside_);
  FinishSwitch(inside_fake_, &outside_bottom_, &outside_bytes_);
}

}  // namespace kvant::simt
