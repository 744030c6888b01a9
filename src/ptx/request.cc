#include "ptx/request.h"

#include <optional>
#include <vector>

namespace kvant::ptx {

Space SpaceOf(const Instruction& op) {
  if (op.Has(Names("shared shared::cta"))) return Space::kShared;
  if (op.Has(Names("global"))) return Space::kGlobal;
  if (op.Has(Names("local"))) return Space::kLocal;
  if (op.Has(Names("param"))) return Space::kParam;
  return op.Has(Names("const")) ? Space::kConst : Space::kGeneric;
}

Request::Request(Warp& warp, const Instruction& op, const Operand& address, LaneMask lanes,
                 uint64_t bytes)
    : warp_(warp), op_(op), lanes_(lanes), space_(SpaceOf(op)) {
  bytes_.fill(bytes);
  Locate(address);
}

Request::Request(Warp& warp, const Instruction& op, const Operand& address, LaneMask lanes,
                 Space space, const LaneValues& bytes)
    : warp_(warp), op_(op), lanes_(lanes), space_(space), bytes_(bytes) {
  Locate(address);
}

void Request::Locate(const Operand& address) {
  LaneValues base{};
  Operand reg = address;
  reg.kind = Operand::Kind::kRegister;
  if (address.reg >= 0 && !warp_.Read(op_, reg, lanes_, &base)) return;
  is_located_ = true;
  ForEachLane(lanes_, [&](int lane) {
    Warp::Place& place = places_[static_cast<size_t>(lane)];
    if (bytes_[lane] == 0) return;
    place = warp_.Find(op_, lane, space_, base[lane] + address.value);
    if (place.region == nullptr) is_located_ = false;
  });
}

bool Request::Check(std::optional<std::string> (Region::*check)(uint64_t, uint64_t) const) {
  bool is_fine = is_located_;
  ForEachLane(lanes_, [&](int lane) {
    const Warp::Place& at = place(lane);
    if (!is_fine || bytes_[lane] == 0) return;
    const auto fault = (at.region->*check)(at.offset, bytes_[lane]);
    if (!fault) return;
    warp_.Fail(op_, lane, *fault);
    is_fine = false;
  });
  return is_fine;
}

// One warp instruction may touch several allocations: a request to each.
void Request::Count(TrafficMeter* (Region::*meter)()) {
  LaneMask rest = lanes_;
  while (rest != 0) {
    Region* region = place(std::countr_zero(rest)).region;
    std::vector<ByteRange> ranges;
    ForEachLane(rest, [&](int lane) {
      if (place(lane).region != region) return;
      rest &= ~(LaneMask{1} << lane);
      if (bytes_[lane] != 0) ranges.push_back({place(lane).offset, bytes_[lane]});
    });
    TrafficMeter* counter = region == nullptr ? nullptr : (region->*meter)();
    if (counter != nullptr) counter->Count(std::move(ranges));
  }
}

void Request::CountShared() {
  std::vector<ByteRange> ranges;
  ForEachLane(lanes_, [&](int lane) {
    if (bytes_[lane] != 0) ranges.push_back({place(lane).offset, bytes_[lane]});
  });
  warp_.CountShared(ranges);
}

bool Request::CheckRaces(bool is_write) {
  bool is_fine = true;
  ForEachLane(lanes_, [&](int lane) {
    if (!is_fine || bytes_[lane] == 0) return;
    is_fine = warp_.CheckRace(op_, lane, place(lane), bytes_[lane], is_write);
  });
  return is_fine;
}

bool Request::CheckReads() {
  if (!Check(&Region::CheckRead) || !CheckRaces(false)) return false;
  Count(&Region::loads);
  if (space_ == Space::kShared) CountShared();
  return true;
}

bool Request::CheckWrites() {
  if (!Check(&Region::CheckWrite) || !CheckRaces(true)) return false;
  Count(&Region::stores);
  return true;
}

bool Request::CheckAtomics() {
  if (!Check(&Region::CheckRead) || !Check(&Region::CheckWrite)) return false;
  Count(&Region::loads);
  Count(&Region::stores);
  return true;
}

void Request::Read(int lane, std::byte* out) const {
  place(lane).region->Read(place(lane).offset, {out, bytes_[lane]});
}
void Request::Write(int lane, const std::byte* in) const {
  place(lane).region->Write(place(lane).offset, {in, bytes_[lane]});
}

}  // namespace kvant::ptx
