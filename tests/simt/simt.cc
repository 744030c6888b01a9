#include "simt/simt.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "simt/fiber.h"

namespace kvant::simt {
namespace {

constexpr int kLanes = 32;

enum class Meeting { kNone, kShuffleXor, kShuffleFrom, kMultiplyAdd, kTranspose, kBarrier };
constexpr const char* kMeetingNames[] = {"nothing",     "ShuffleXor",   "ShuffleFrom",
                                         "MultiplyAdd", "Transpose8x8", "SyncThreads"};

// What a thread did wrong; told by the scheduler, since an abandoned fiber must not own memory.
enum class FaultKind { kNone, kDivergence, kLeft, kSharedArrays, kReadsOutside, kUnaligned };
struct FaultRecord {
  FaultKind kind = FaultKind::kNone;
  int thread = 0;
  int detail = 0;  // the other thread, the lane that it reads, or bytes
};

// What a lane brings to a meeting and takes from it.
struct Operands {
  std::array<uint32_t, 6> in{};
  std::array<float, 4> accumulator{};
  int argument = 0;
  uint32_t out = 0;
};

struct Copy {
  void* to;
  const void* from;
  int group;
};

struct Thread {
  Fiber fiber;
  bool done = false, waits = false;
  Meeting meeting = Meeting::kNone;
  int line = 0;
  size_t shared_arrays = 0;  // that it has asked for
  int barriers = 0;          // that it has come to
  std::vector<Copy> copies;  // that have not landed
  int groups = 0;            // of copies, committed
  Operands operands;
};

// One block after another; its threads' fibers are kept for the next.
class Machine {
 public:
  static Machine& Get() {
    static thread_local Machine machine;
    return machine;
  }

  std::string Run(const LaunchOptions& options, const std::function<void()>& body) {
    options_ = &options;
    state_ = options.seed * 2 + 1;
    fault_.clear();
    while (std::ssize(threads_) < options.threads) threads_.push_back(std::make_unique<Thread>());
    for (block_y_ = 0; block_y_ < options.grid_y; ++block_y_) {
      for (block_x_ = 0; block_x_ < options.grid_x; ++block_x_) {
        RunBlock(body);
        if (!fault_.empty()) {
          return "block (" + std::to_string(block_x_) + ", " + std::to_string(block_y_) +
                 "): " + fault_;
        }
      }
    }
    return "";
  }

  int thread_index() const { return current_; }
  int block_x() const { return block_x_; }
  int block_y() const { return block_y_; }

  // Waits until all lanes of the warp (for a barrier all threads of the block) have come. All must
  // come to the same operation at the same line.
  void Meet(Meeting meeting, int line) {
    Thread& self = *threads_[static_cast<size_t>(current_)];
    self.meeting = meeting;
    self.line = line;
    const int first = meeting == Meeting::kBarrier ? 0 : current_ / kLanes * kLanes;
    const int count = meeting == Meeting::kBarrier ? options_->threads : kLanes;
    bool complete = true;
    for (int i = first; i < first + count; ++i) {
      const Thread& other = *threads_[static_cast<size_t>(i)];
      if (i == current_) continue;
      const bool same_warp = i / kLanes == current_ / kLanes;
      if (other.done && meeting != Meeting::kBarrier) {
        Fail(FaultKind::kLeft, current_, i);
      }
      if (!other.waits || (!same_warp && other.meeting != Meeting::kBarrier)) {
        complete = false;
      } else if (other.meeting != meeting || other.line != line) {
        Fail(FaultKind::kDivergence, current_, i);
      }
    }
    if (!complete) {
      self.waits = true;
      self.fiber.Yield();
      return;
    }
    if (meeting != Meeting::kBarrier) Exchange(first, meeting);
    for (int i = first; i < first + count; ++i) threads_[static_cast<size_t>(i)]->waits = false;
  }

  void Barrier(int line) {
    Thread& self = *threads_[static_cast<size_t>(current_)];
    if (self.barriers++ != options_->fault.dropped_barrier) Meet(Meeting::kBarrier, line);
  }
  void Copy16(void* to, const void* from) {
    Thread& self = *threads_[static_cast<size_t>(current_)];
    self.copies.push_back({to, from, self.groups});
    std::memset(to, 0xff, 16);
  }
  void Commit() { ++threads_[static_cast<size_t>(current_)]->groups; }
  void Wait(int pending) {
    Thread& self = *threads_[static_cast<size_t>(current_)];
    std::erase_if(self.copies, [&](const Copy& copy) {
      if (copy.group >= self.groups - pending) return false;
      std::memcpy(copy.to, copy.from, 16);
      return true;
    });
  }
  int XorMask(int mask) const {
    return mask == options_->fault.xor_mask ? options_->fault.wrong_xor_mask : mask;
  }

  Operands& operands() { return threads_[static_cast<size_t>(current_)]->operands; }

  void* Shared(size_t bytes) {
    Thread& self = *threads_[static_cast<size_t>(current_)];
    const size_t number = self.shared_arrays++;
    if (number == shared_.size()) shared_.emplace_back(bytes, std::byte{0xff});
    if (shared_[number].size() != bytes) Fail(FaultKind::kSharedArrays, current_, 0);
    return shared_[number].data();
  }

  // Does not return: the block is given up.
  void Fail(FaultKind kind, int thread, int detail) {
    record_ = {kind, thread, detail};
    threads_[static_cast<size_t>(current_)]->fiber.Yield();
  }
  void FailCurrent(FaultKind kind, int detail) { Fail(kind, current_, detail); }

 private:
  void RunBlock(const std::function<void()>& body) {
    shared_.clear();
    int left = options_->threads;
    const std::function<void()> whole = [&] {
      body();
      threads_[static_cast<size_t>(current_)]->done = true;
      --left;
    };
    for (int i = 0; i < options_->threads; ++i) {
      Thread& thread = *threads_[static_cast<size_t>(i)];
      thread.done = thread.waits = false;
      thread.shared_arrays = 0;
      thread.barriers = 0;
      thread.copies.clear();
      thread.groups = 0;
      thread.fiber.Start(&whole);
    }
    next_ =
        options_->schedule == Schedule::kRunAhead
            ? static_cast<int>(options_->seed % static_cast<uint64_t>(options_->threads / kLanes)) *
                  kLanes
            : 0;
    record_ = {};
    while (left > 0 && record_.kind == FaultKind::kNone) {
      current_ = Pick();
      if (current_ < 0) {
        TellDeadlock();
        return;
      }
      threads_[static_cast<size_t>(current_)]->fiber.Resume();
    }
    TellFault();
  }

  void TellFault() {
    const std::string who = Name(record_.thread);
    switch (record_.kind) {
      case FaultKind::kNone:
        break;
      case FaultKind::kDivergence:
        fault_ = who + " and " + Name(record_.detail) + " diverge";
        break;
      case FaultKind::kLeft:
        fault_ = who + " names " + Name(record_.detail) + ", which has left";
        break;
      case FaultKind::kSharedArrays:
        fault_ = who + " asks for another shared array than the rest";
        break;
      case FaultKind::kReadsOutside:
        fault_ = who + " reads lane " + std::to_string(record_.detail);
        break;
      case FaultKind::kUnaligned:
        fault_ = who + ": a load of " + std::to_string(record_.detail) + " bytes is not aligned";
        break;
    }
  }

  bool CanRun(int i) const {
    const Thread& thread = *threads_[static_cast<size_t>(i)];
    return !thread.done && !thread.waits;
  }

  // The first that can run from `next_` on, which each schedule moves in its own way; -1: none.
  int Pick() {
    const int count = options_->threads;
    if (options_->schedule == Schedule::kRandom) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      next_ = static_cast<int>((state_ >> 33) % static_cast<uint64_t>(count));
    }
    for (int k = 0; k < count; ++k) {
      const int i = (next_ + k) % count;
      if (!CanRun(i)) continue;
      next_ = options_->schedule == Schedule::kRunAhead ? i / kLanes * kLanes : (i + 1) % count;
      return i;
    }
    return -1;
  }

  std::string Name(int i) const {
    const Thread& thread = *threads_[static_cast<size_t>(i)];
    std::string name = "warp " + std::to_string(i / kLanes) + " lane " + std::to_string(i % kLanes);
    if (!thread.done) {
      name += " (" + std::string(kMeetingNames[static_cast<int>(thread.meeting)]) + " at line " +
              std::to_string(thread.line) + ")";
    }
    return name;
  }

  void TellDeadlock() {
    std::string waiting, left;
    for (int i = 0; i < options_->threads; ++i) {
      const Thread& thread = *threads_[static_cast<size_t>(i)];
      (thread.done ? left : waiting) = Name(i);
    }
    fault_ = waiting + " waits without end" + (left.empty() ? "" : ", " + left + " has left");
  }

  void Exchange(int first, Meeting meeting);
  void MultiplyTiles(int first);

  Operands& Lane(int first, int lane) {
    return threads_[static_cast<size_t>(first + lane)]->operands;
  }

  const LaunchOptions* options_ = nullptr;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::vector<std::byte>> shared_;
  FaultRecord record_;
  std::string fault_;
  int current_ = 0, next_ = 0, block_x_ = 0, block_y_ = 0;
  uint64_t state_ = 0;
};

void Machine::Exchange(int first, Meeting meeting) {
  if (meeting == Meeting::kMultiplyAdd) return MultiplyTiles(first);
  for (int lane = 0; lane < kLanes; ++lane) {
    Operands& own = Lane(first, lane);
    if (meeting == Meeting::kTranspose) {
      // Row g, columns 2t and 2t + 1 of the transposed: column g of rows 2t and 2t + 1.
      const int g = lane / 4, t = lane % 4;
      uint32_t out = 0;
      for (int e = 0; e < 2; ++e) {
        const uint32_t word = Lane(first, (2 * t + e) * 4 + g / 2).in[0];
        out |= ((word >> (g % 2 * 16)) & 0xffffu) << (16 * e);
      }
      own.out = out;
      continue;
    }
    const int from = meeting == Meeting::kShuffleXor ? lane ^ own.argument : own.argument;
    if (from < 0 || from >= kLanes) Fail(FaultKind::kReadsOutside, first + lane, from);
    own.out = Lane(first, from).in[0];
  }
}

void Machine::MultiplyTiles(int first) {
  double a[16][16], b[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const Operands& own = Lane(first, lane);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = g + i % 2 * 8, column = 2 * t + i / 2 * 8;
      a[row][column] = static_cast<double>(LowHalf(own.in[static_cast<size_t>(i)]));
      a[row][column + 1] = static_cast<double>(HighHalf(own.in[static_cast<size_t>(i)]));
    }
    for (int i = 0; i < 2; ++i) {
      b[2 * t + i * 8][g] = static_cast<double>(LowHalf(own.in[static_cast<size_t>(4 + i)]));
      b[2 * t + i * 8 + 1][g] = static_cast<double>(HighHalf(own.in[static_cast<size_t>(4 + i)]));
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    Operands& own = Lane(first, lane);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double sum = static_cast<double>(own.accumulator[static_cast<size_t>(i)]);
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      own.accumulator[static_cast<size_t>(i)] = static_cast<float>(sum);
    }
  }
}

}  // namespace

std::string Launch(const LaunchOptions& options, const std::function<void()>& thread) {
  return Machine::Get().Run(options, thread);
}

int ThreadIndex() { return Machine::Get().thread_index(); }
int BlockX() { return Machine::Get().block_x(); }
int BlockY() { return Machine::Get().block_y(); }
void SyncThreads(int line) { Machine::Get().Barrier(line); }
void* SharedBytes(size_t bytes) { return Machine::Get().Shared(bytes); }

uint32_t ShuffleXor(uint32_t x, int mask, int line) {
  Machine& machine = Machine::Get();
  machine.operands().in[0] = x;
  machine.operands().argument = machine.XorMask(mask);
  machine.Meet(Meeting::kShuffleXor, line);
  return machine.operands().out;
}
float ShuffleXor(float x, int mask, int line) {
  return std::bit_cast<float>(ShuffleXor(std::bit_cast<uint32_t>(x), mask, line));
}
uint32_t ShuffleFrom(uint32_t x, int lane, int line) {
  Machine& machine = Machine::Get();
  machine.operands().in[0] = x;
  machine.operands().argument = lane;
  machine.Meet(Meeting::kShuffleFrom, line);
  return machine.operands().out;
}
uint32_t Transpose8x8(uint32_t x, int line) {
  Machine& machine = Machine::Get();
  machine.operands().in[0] = x;
  machine.Meet(Meeting::kTranspose, line);
  return machine.operands().out;
}
void MultiplyAdd(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float (&c)[4],
                 float (&out)[4], int line) {
  Machine& machine = Machine::Get();
  Operands& operands = machine.operands();
  std::copy_n(a, 4, operands.in.begin());
  operands.in[4] = b0;
  operands.in[5] = b1;
  std::copy_n(c, 4, operands.accumulator.begin());
  machine.Meet(Meeting::kMultiplyAdd, line);
  std::copy_n(machine.operands().accumulator.begin(), 4, out);
}

void CopyAsync16(void* to, const void* from) {
  CheckAligned(to, 16);
  CheckAligned(from, 16);
  Machine::Get().Copy16(to, from);
}
void CommitCopies() { Machine::Get().Commit(); }
void WaitForCopies(int pending) { Machine::Get().Wait(pending); }

uint32_t Permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = a | (static_cast<uint64_t>(b) << 32);
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = (selector >> (4 * i)) & 7u;
    out |= (static_cast<uint32_t>(bytes >> (8 * from)) & 0xffu) << (8 * i);
  }
  return out;
}

void CheckAligned(const void* at, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(at) % bytes == 0) return;
  Machine::Get().FailCurrent(FaultKind::kUnaligned, static_cast<int>(bytes));
}

}  // namespace kvant::simt
