#include "codec/fitted_table.h"

#include <bit>

namespace kvant {

FittedTable::FittedTable(const FittedLevels& fitted) {
  const size_t count = fitted.levels.size();
  table_.bits = table_.window_bits = std::countr_zero(count);
  table_.sigma = fitted.sigma;
  for (size_t i = 0; i < count; ++i) {
    levels_[i] = fitted.levels[i];
    kernel_levels_[i] = static_cast<uint8_t>(fitted.levels[i] + 128);
    table_.symmetric = table_.symmetric && fitted.levels[i] == -fitted.levels[count - 1 - i];
  }
  table_.levels = levels_;
  table_.kernel_levels = kernel_levels_;
}

}  // namespace kvant
