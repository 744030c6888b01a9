#include "ptx/block.h"

#include <algorithm>
#include <bit>
#include <string>

namespace kvant::ptx {
namespace {

bool HasPartialBarriers(const Kernel& kernel) {
  return std::any_of(kernel.code.begin(), kernel.code.end(), [](const Instruction& op) {
    return op.opcode->meeting == Meeting::kBlock && op.operands.size() > 1;
  });
}

constexpr uint64_t kLongestTurn = 64;  // of a random warp, in instructions

}  // namespace

Block::Block(Launch* launch, Dim3 index)
    : launch_(*launch),
      index_(index),
      shared_bytes_(launch->kernel.dynamic_shared_offset() + launch->dynamic_shared_bytes),
      shared_("shared memory", shared_bytes_, {.is_undefined = true}),
      random_(launch->schedule.seed + index.x + uint64_t{index.y} * 65537 + index.z * 257) {
  if (!HasPartialBarriers(launch->kernel)) races_.emplace(shared_bytes_.size());
  const uint64_t threads = launch->block.count();
  warps_.reserve((threads + kWarpLanes - 1) / kWarpLanes);
  for (uint64_t first = 0; first < threads; first += kWarpLanes) {
    const auto lanes = static_cast<int>(std::min<uint64_t>(threads - first, kWarpLanes));
    warps_.emplace_back(this, launch, first, lanes);
  }
  if (launch->schedule.warps == Schedule::Warps::kRunAhead) {
    turn_ = launch->schedule.seed % warps_.size();
  }
}

void Block::Run() {
  while (!launch_.failed()) {
    Warp* warp = NextWarp();
    if (warp == nullptr) {
      const bool is_over =
          std::all_of(warps_.begin(), warps_.end(), [](const Warp& w) { return w.live() == 0; });
      if (!is_over) ReportDeadlock();
      return;
    }
    warp->Step();
    if (launch_.issued_total > launch_.max_issued) {
      launch_.fault = "the kernel does not end within " + std::to_string(launch_.max_issued) +
                      " warp instructions";
    }
    if (!warp->can_run()) ReleaseBarriers();
  }
}

Warp* Block::NextWarp() {
  const bool is_random = launch_.schedule.warps == Schedule::Warps::kRandom;
  if (is_random && turn_left_ == 0) {
    turn_ = random_() % warps_.size();
    turn_left_ = 1 + random_() % kLongestTurn;
  }
  if (turn_left_ > 0) --turn_left_;
  for (size_t i = 0; i < warps_.size(); ++i) {
    const size_t at = (turn_ + i) % warps_.size();
    if (!warps_[at].can_run()) continue;
    if (launch_.schedule.warps == Schedule::Warps::kRoundRobin) turn_ = at + 1;
    return &warps_[at];
  }
  return nullptr;
}

// A barrier opens once all the threads that it waits for are there.
void Block::ReleaseBarriers() {
  for (Warp& candidate : warps_) {
    const Warp::BarrierWait wait = candidate.barrier_wait();
    if (wait.lanes == 0) continue;
    const uint64_t wanted = wait.threads != 0 ? wait.threads : launch_.block.count();
    uint64_t arrived = 0;
    for (Warp& warp : warps_) {
      const Warp::BarrierWait other = warp.barrier_wait();
      if (other.lanes != 0 && other.barrier == wait.barrier) {
        arrived += static_cast<uint64_t>(std::popcount(other.lanes));
      }
    }
    if (arrived < wanted) continue;
    if (races_) races_->Barrier();
    for (Warp& warp : warps_) {
      const Warp::BarrierWait other = warp.barrier_wait();
      if (other.lanes != 0 && other.barrier == wait.barrier) warp.ReleaseBarrier();
    }
  }
}

void Block::ReportDeadlock() {
  uint64_t waiting = 0;
  uint64_t ended = launch_.block.count();
  std::string lines;
  for (Warp& warp : warps_) {
    ended -= static_cast<uint64_t>(std::popcount(warp.live()));
    const Warp::BarrierWait wait = warp.barrier_wait();
    if (wait.lanes == 0) continue;
    waiting += static_cast<uint64_t>(std::popcount(wait.lanes));
    const std::string line = "line " + std::to_string(wait.line);
    if (lines.find(line) == lines.npos) lines += (lines.empty() ? "" : " and ") + line;
  }
  launch_.fault = "deadlock: " + std::to_string(waiting) + " of " +
                  std::to_string(launch_.block.count()) + " threads wait at the barrier of " +
                  lines + ", " + std::to_string(ended) + " have ended";
}

}  // namespace kvant::ptx
