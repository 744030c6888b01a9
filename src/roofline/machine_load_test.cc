#include "roofline/machine_load.h"

#include <gtest/gtest.h>

#include <chrono>

namespace kvant {
namespace {

// user nice system idle iowait irq softirq steal guest guest_nice, in ticks.
constexpr char kBegin[] =
    "cpu  1000 50 200 9000 100 5 10 20 700 0\n"
    "cpu0 500 25 100 4500 50 3 5 10 350 0\n"
    "cpu1 500 25 100 4500 50 2 5 10 350 0\n"
    "intr 123 0 0\nctxt 99\nbtime 1\n";
constexpr char kEnd[] =
    "cpu  1300 60 230 9040 110 6 14 40 900 0\n"
    "cpu0 650 30 115 4520 55 3 7 20 450 0\n"
    "cpu1 650 30 115 4520 55 3 7 20 450 0\n";

TEST(ParseCoreTimes, GuestTimeIsNotCountedTwiceNorWaitingAsWork) {
  const CoreTimes times = *ParseCoreTimes(kBegin, 100);
  EXPECT_EQ(times.cores, 2);
  EXPECT_DOUBLE_EQ(times.busy_s, 12.65);  // user + nice + system + irq + softirq
  EXPECT_DOUBLE_EQ(times.idle_s, 91.0);   // idle + iowait
  EXPECT_DOUBLE_EQ(times.steal_s, 0.2);
  EXPECT_DOUBLE_EQ(ParseCoreTimes(kBegin, 1000)->steal_s, 0.02);
}

TEST(ParseCoreTimes, TextThatIsNoProcStatGivesNothing) {
  EXPECT_FALSE(ParseCoreTimes("", 100));
  EXPECT_FALSE(ParseCoreTimes("cpu0 1 2 3 4 5 6 7 8\n", 100));  // no total
  EXPECT_FALSE(ParseCoreTimes("cpu 1 2 3 4 5 6 7 8\n", 100));   // no cores
  EXPECT_FALSE(ParseCoreTimes("cpu 1 2 3\ncpu0 1 2 3\n", 100));
  EXPECT_FALSE(ParseCoreTimes("cpu a b c d e f g h\ncpu0 1\n", 100));
}

TEST(LoadBetween, OwnWorkIsNotOthers) {
  CoreTimes begin = *ParseCoreTimes(kBegin, 100), end = *ParseCoreTimes(kEnd, 100);
  begin.own_s = 1.0;
  end.own_s = 3.45;  // of the 3.45 s that all processes worked, 2.45 s were ours
  const MachineLoad load = LoadBetween(begin, end, 2);
  EXPECT_NEAR(load.other_pct, 25, 1e-9);  // 1 s of 2 s on 2 cores
  EXPECT_NEAR(load.steal_pct, 5, 1e-9);
  EXPECT_EQ(load.cores, 2);
}

TEST(LoadBetween, CoarseClocksNeverGiveLessThanNothing) {
  CoreTimes begin, end;
  begin.cores = end.cores = 2;
  end.own_s = 0.02;  // known exactly, while the system's busy time still waits for its next tick
  EXPECT_EQ(LoadBetween(begin, end, 0.01).other_pct, 0);
  EXPECT_EQ(LoadBetween(begin, end, 0).other_pct, 0);
}

TEST(WhyBusy, AQuietMachineGivesNoReason) {
  EXPECT_EQ(WhyBusy(MachineLoad{2, 2, 0.5, 3, 2.2}, 4), "");
  EXPECT_EQ(WhyBusy(std::nullopt, 4), "");
}

TEST(WhyBusy, NamesEveryCause) {
  EXPECT_EQ(WhyBusy(MachineLoad{2, 2, 4, 3, 2}, 4), "the hypervisor withheld 4 % of the cores");
  EXPECT_EQ(WhyBusy(MachineLoad{2, 2, 0, 31.26, 4.127}, 24),
            "other processes took 31.3 % of the cores, 4.13 threads shared 2 cores, samples spread "
            "over 24 %");
  EXPECT_EQ(WhyBusy(std::nullopt, 12.5), "samples spread over 12.5 %");
}

TEST(WhyBusy, AFewTicksAreNotJudged) { EXPECT_EQ(WhyBusy(MachineLoad{0.01, 2, 50, 50, 1}, 0), ""); }

TEST(LoadMeter, MeasuresFromItsLastRestart) {
  LoadMeter meter;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(50)) {
  }
  const std::optional<MachineLoad> whole = meter.Read();
  if (!whole) GTEST_SKIP() << "this system has no /proc/stat";
  EXPECT_GE(whole->seconds, 0.05);
  EXPECT_GE(whole->cores, 1);
  meter.Restart();
  EXPECT_LT(meter.Read()->seconds, whole->seconds);
}

}  // namespace
}  // namespace kvant
