#include "cache/hole_filling.h"

#include <algorithm>

namespace kvant {

std::vector<SlotMove> HoleFillingMoves(const std::vector<bool>& keep) {
  const auto kept = static_cast<size_t>(std::count(keep.begin(), keep.end(), true));
  std::vector<SlotMove> moves;
  size_t survivor = kept;
  for (size_t hole = 0; hole < kept; ++hole) {
    if (keep[hole]) continue;
    while (!keep[survivor]) ++survivor;
    moves.push_back({static_cast<int64_t>(survivor++), static_cast<int64_t>(hole)});
  }
  return moves;
}

}  // namespace kvant
