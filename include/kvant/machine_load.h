// How busy the rest of the machine was while something was measured: who else used its cores.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace kvant {

// Percentages are of the time of all cores together.
struct MachineLoad {
  double seconds = 0;
  int cores = 0;
  double steal_pct = 0;     // the hypervisor gave it to other machines
  double other_pct = 0;     // other processes and the kernel's own work
  double load_average = 0;  // runnable threads of the last minute, this process's among them
};

// Cores' use so far. Values only grow.
struct CoreTimes {
  double busy_s = 0, idle_s = 0, steal_s = 0;  // all cores together, since the system started
  double own_s = 0;                            // busy time of this process
  int cores = 0;
};

// Compares two moments. One thread at a time.
class LoadMeter {
 public:
  LoadMeter() { Restart(); }

  // The measurement begins now.
  void Restart();

  // From the beginning until now; nothing where the system does not tell (no /proc). The system
  // counts in steps of some milliseconds: over less than a tenth of a second the percentages are
  // coarse.
  std::optional<MachineLoad> Read() const;

 private:
  std::chrono::steady_clock::time_point begin_;
  std::optional<CoreTimes> at_begin_;
};

// Why times taken under this load should not be trusted, as in "other processes took 31 % of the
// cores, samples spread over 24 %"; empty when nothing speaks against them. `spread_pct` is the
// middle half of the samples, its width over their median.
std::string WhyBusy(const std::optional<MachineLoad>& load, double spread_pct);

}  // namespace kvant
