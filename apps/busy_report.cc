#include "busy_report.h"

#include <fmt/core.h>

#include "output.h"
#include "statistics.h"

namespace kvant::cli {

void BusyReport::Add(const std::optional<MachineLoad>& load, const std::vector<double>& samples,
                     Json* row) {
  const double middle = Median(samples);
  const double spread_pct =
      middle > 0 ? 100 * (Quantile(samples, 0.75) - Quantile(samples, 0.25)) / middle : 0;
  const std::string why = WhyBusy(load, spread_pct);
  (*row)["spread_pct"] = spread_pct;
  (*row)["steal_pct"] = load ? Json(load->steal_pct) : Json();
  (*row)["other_cpu_pct"] = load ? Json(load->other_pct) : Json();
  (*row)["load_average"] = load ? Json(load->load_average) : Json();
  (*row)["busy"] = why.empty() ? Json() : Json(why);
  ++rows_;
  if (why.empty()) return;
  ++busy_rows_;
  if (spread_pct > worst_spread_pct_) {
    worst_spread_pct_ = spread_pct;
    worst_ = why;
  }
}

void BusyReport::Print() const {
  if (busy_rows_ == 0) return;
  Note(
      fmt::format("the machine was busy during {} of {} measurements ({}); repeat them when it is "
                  "quiet",
                  busy_rows_, rows_, worst_));
}

}  // namespace kvant::cli
