// cp.async, at its worst: the target is undefined from the moment of issue, and filled only when
// the lane that asked waits for it.
#include <array>
#include <utility>

#include "ptx/request.h"
#include "ptx/warp_functions.h"

namespace kvant::ptx {
namespace {

constexpr size_t kMostCopyBytes = 16;

void Complete(Warp& warp, const Instruction& op, int lane, const std::vector<Warp::Copy>& copies) {
  for (const Warp::Copy& copy : copies) {
    if (!warp.CheckRace(op, lane, copy.to, copy.bytes, true)) return;
    std::array<std::byte, kMostCopyBytes> bytes{};
    if (copy.from_bytes > 0) {
      copy.from.region->Read(copy.from.offset, {bytes.data(), copy.from_bytes});
    }
    copy.to.region->Write(copy.to.offset, {bytes.data(), copy.bytes});
  }
}

}  // namespace

// [shared], [global], bytes, and how many of them are read; the rest become zeros.
void CopyAsync(Warp& warp, const Instruction& op, LaneMask lanes) {
  LaneValues bytes, from_bytes;
  if (!warp.Read(op, op.operands[2], lanes, &bytes)) return;
  if (!warp.Read(op, op.operands.back(), lanes, &from_bytes)) return;
  ForEachLane(lanes, [&](int lane) {
    const bool is_size =
        bytes[lane] == 16 || (op.Has(Names("ca")) && (bytes[lane] == 4 || bytes[lane] == 8));
    if (!is_size) warp.Fail(op, lane, "a copy of this many bytes is none");
    from_bytes[lane] = std::min(LowBits(from_bytes[lane], 32), bytes[lane]);
  });
  Request to(warp, op, op.operands[0], lanes, Space::kShared, bytes);
  Request from(warp, op, op.operands[1], lanes, Space::kGlobal, from_bytes);
  if (!to.CheckWrites() || !from.CheckReads()) return;
  ForEachLane(lanes, [&](int lane) {
    to.place(lane).region->Poison(to.place(lane).offset, bytes[lane]);
    warp.copies(lane).open.push_back(
        {to.place(lane), from.place(lane), bytes[lane], from_bytes[lane]});
  });
}

void CommitCopies(Warp& warp, const Instruction&, LaneMask lanes) {
  ForEachLane(lanes, [&](int lane) {
    Warp::LaneCopies& copies = warp.copies(lane);
    copies.groups.push_back(std::exchange(copies.open, {}));
  });
}

// wait_group N: all but the newest N groups; wait_all: those and what is not committed.
void WaitForCopies(Warp& warp, const Instruction& op, LaneMask lanes) {
  const bool is_all = op.Has(Names("wait_all"));
  const uint64_t pending = is_all ? 0 : op.operands[0].value;
  ForEachLane(lanes, [&](int lane) {
    Warp::LaneCopies& copies = warp.copies(lane);
    while (copies.groups.size() > pending) {
      Complete(warp, op, lane, copies.groups.front());
      copies.groups.pop_front();
    }
    if (is_all) Complete(warp, op, lane, std::exchange(copies.open, {}));
  });
}

}  // namespace kvant::ptx
