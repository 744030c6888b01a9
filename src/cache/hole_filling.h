// How the holes of a table are closed.
#pragma once

#include <cstdint>
#include <vector>

namespace kvant {

// A slot whose content goes to another one, which is free.
struct SlotMove {
  int64_t from, to;
  bool operator==(const SlotMove&) const = default;
};

// keep: [slots] which of them stay; m of them do. Afterwards the first m slots hold all that stays:
// the k-th hole among them takes the k-th survivor behind them, k being a prefix sum on either
// side. Sources and destinations are apart, so moves may be done in any order. At most as many
// tokens move as leave; keeping the order of all would move everything behind the first hole (8,192
// tokens a page close where 64 leave).
std::vector<SlotMove> HoleFillingMoves(const std::vector<bool>& keep);

}  // namespace kvant
