#include "roofline/machine_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace kvant {
namespace {

// Below these an idle machine's own housekeeping and the coarse clock can be the cause.
constexpr double kQuietStealPct = 1;
constexpr double kQuietOtherPct = 5;
constexpr double kQuietSpreadPct = 10;
constexpr double kQuietExtraThreads = 0.5;  // runnable ones beyond the cores
constexpr double kShortestJudged_s = 0.1;

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

std::optional<CoreTimes> CoreTimesNow() {
  std::ifstream file("/proc/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::optional<CoreTimes> times = ParseCoreTimes(text, static_cast<double>(sysconf(_SC_CLK_TCK)));
  rusage own{};
  if (!times || getrusage(RUSAGE_SELF, &own) != 0) return std::nullopt;
  times->own_s = Seconds(own.ru_utime) + Seconds(own.ru_stime);
  return times;
}

std::string Percent(double value) {
  std::ostringstream text;
  text.precision(value < 10 ? 2 : 3);
  text << value << " %";
  return text.str();
}

}  // namespace

std::optional<CoreTimes> ParseCoreTimes(std::string_view proc_stat, double ticks_per_s) {
  // The kernel's order. Guests' time is contained in user and nice.
  enum { kUser, kNice, kSystem, kIdle, kIoWait, kIrq, kSoftIrq, kSteal, kFields };
  std::istringstream lines{std::string(proc_stat)};
  std::optional<CoreTimes> times;
  int cores = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("cpu")) continue;
    if (line.size() > 3 && std::isdigit(static_cast<unsigned char>(line[3]))) ++cores;
    if (!line.starts_with("cpu ")) continue;
    std::istringstream fields(line.substr(4));
    std::array<double, kFields> ticks{};
    for (double& field : ticks) {
      if (!(fields >> field)) return std::nullopt;
    }
    times.emplace();
    times->busy_s = (ticks[kUser] + ticks[kNice] + ticks[kSystem] + ticks[kIrq] + ticks[kSoftIrq]) /
                    ticks_per_s;
    times->idle_s = (ticks[kIdle] + ticks[kIoWait]) / ticks_per_s;
    times->steal_s = ticks[kSteal] / ticks_per_s;
  }
  if (!times || cores == 0) return std::nullopt;
  times->cores = cores;
  return times;
}

MachineLoad LoadBetween(const CoreTimes& begin, const CoreTimes& end, double seconds) {
  MachineLoad load;
  load.seconds = seconds;
  load.cores = end.cores;
  const double capacity_s = seconds * end.cores;
  if (capacity_s <= 0) return load;
  const auto part_pct = [&](double part_s) {
    return std::clamp(100 * part_s / capacity_s, 0.0, 100.0);
  };
  load.steal_pct = part_pct(end.steal_s - begin.steal_s);
  load.other_pct = part_pct((end.busy_s - begin.busy_s) - (end.own_s - begin.own_s));
  return load;
}

void LoadMeter::Restart() {
  at_begin_ = CoreTimesNow();
  begin_ = std::chrono::steady_clock::now();
}

std::optional<MachineLoad> LoadMeter::Read() const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
  const std::optional<CoreTimes> now = CoreTimesNow();
  if (!at_begin_ || !now) return std::nullopt;
  MachineLoad load = LoadBetween(*at_begin_, *now, elapsed.count());
  if (getloadavg(&load.load_average, 1) != 1) return std::nullopt;
  return load;
}

std::string WhyBusy(const std::optional<MachineLoad>& load, double spread_pct) {
  std::string why;
  const auto add = [&](bool busy, const std::string& reason) {
    if (busy) why += (why.empty() ? "" : ", ") + reason;
  };
  if (load) {
    const bool judged = load->seconds >= kShortestJudged_s;
    add(judged && load->steal_pct > kQuietStealPct,
        "the hypervisor withheld " + Percent(load->steal_pct) + " of the cores");
    add(judged && load->other_pct > kQuietOtherPct,
        "other processes took " + Percent(load->other_pct) + " of the cores");
    std::ostringstream threads;
    threads.precision(3);
    threads << load->load_average << " threads shared " << load->cores << " cores";
    add(load->load_average > load->cores + kQuietExtraThreads, threads.str());
  }
  add(spread_pct > kQuietSpreadPct, "samples spread over " + Percent(spread_pct));
  return why;
}

}  // namespace kvant
