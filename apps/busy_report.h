// Whether the machine was busy while a command measured: fields of each row, one note at the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kvant/machine_load.h"
#include "report.h"

namespace kvant::cli {

class BusyReport {
 public:
  // Adds spread_pct, steal_pct, other_cpu_pct, load_average and `busy` to a row: the reasons not to
  // trust its samples, or null.
  void Add(const std::optional<MachineLoad>& load, const std::vector<double>& samples, Json* row);

  // One line on standard error if any row was spoiled.
  void Print() const;

 private:
  int rows_ = 0, busy_rows_ = 0;
  double worst_spread_pct_ = -1;
  std::string worst_;  // the reasons of the row with the widest spread
};

}  // namespace kvant::cli
