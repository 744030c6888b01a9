#include "kvant/regime.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvant {
namespace {

constexpr KvGeometry kLlama2{32, 32, 128, 32};

// A device that reads a byte a second and issues `budget` instructions meanwhile.
Device WithBudget(double budget) {
  Device device;
  device.read_bytes_per_s = 1;
  device.target = 80;
  device.multiprocessors = 1;
  device.clock_hz = budget / 128;
  return device;
}

// The time of 8 values where 8 f16 values take 1, from the bytes and instructions of 8 values.
double RelativeTime(double budget, double bytes, double instructions) {
  KernelCost kernel;
  kernel.bits = static_cast<int>(bytes);  // of 8 values, so bits of one
  kernel.issued = instructions / bytes;
  return bytes / 16 * std::max(1.0, BusiestPipe(WithBudget(budget), kernel, 1).load);
}

// Worked by hand: max(bytes / 16, instructions / (16 * budget)). 9.8 is what an A100 of 80 GB
// issues a byte, 4.87 what its integer lanes take.
TEST(BusiestPipe, GivesTheWorkedTimesOf8Values) {
  const struct {
    double bytes, instructions, at_98, at_487;
  } rows[] = {
      {8, 8, .500, .500},                        // int8
      {4, 12, .250, .250},                       // int4 fused
      {4, 32, .250, .411}, {4, 40, .255, .513},  // int4 naive
      {2, 12, .125, .154}, {2, 16, .125, .205},  // int2 fused
      {2, 32, .204, .411}, {2, 40, .255, .513},  // int2 naive
  };
  for (const auto& row : rows) {
    EXPECT_NEAR(RelativeTime(9.8, row.bytes, row.instructions), row.at_98, .0005);
    EXPECT_NEAR(RelativeTime(4.87, row.bytes, row.instructions), row.at_487, .0005);
  }
  // Naive int4 is still twice as fast as int8 by this account, so 10 instructions a byte do not
  // explain a kernel that was measured slower than int8: it takes 11 a value.
  EXPECT_NEAR(RelativeTime(9.8, 8, 8) / RelativeTime(9.8, 4, 40), 1.96, .005);
  EXPECT_LT(RelativeTime(9.8, 4, 9.8 * 8), RelativeTime(9.8, 8, 8) + 1e-12);
  EXPECT_GT(RelativeTime(9.8, 4, 11 * 8), RelativeTime(9.8, 8, 8));
}

TEST(BusiestPipe, BudgetsFollowFromEachDevicesOwnFigures) {
  const struct {
    const char* device;
    double issue, integer, ridge;
  } rows[] = {{"a100-80gb", 9.56, 4.78, 153},
              {"a100-40gb", 12.57, 6.29, 201},
              {"a10", 26.0, 13.0, 208},
              {"h100", 9.99, 4.99, 295},
              {"h200", 6.97, 3.48, 206}};
  for (const auto& row : rows) {
    const Device device = *FindDevice(row.device);
    EXPECT_NEAR(device.IssueBudgetPerByte(), row.issue, row.issue * .006) << row.device;
    EXPECT_NEAR(device.BudgetPerByte(LanesOf(device.target).alu), row.integer, row.integer * .006);
    EXPECT_NEAR(device.matrix_flops_per_s / device.read_bytes_per_s, row.ridge, .5) << row.device;
  }
  EXPECT_NEAR(FindDevice("l40s")->IssueBudgetPerByte(), 53, .1);
  EXPECT_NEAR(FindDevice("b200")->IssueBudgetPerByte(), 4.65, .01);
}

TEST(LanesOf, DiffersWhereTheProgrammingGuideSaysSo) {
  EXPECT_EQ(LanesOf(80).fma, 64);
  EXPECT_EQ(LanesOf(90).fma, 128);
  EXPECT_EQ(LanesOf(89).half2, 64);
  EXPECT_EQ(LanesOf(80).half2, 128);
}

TEST(BusiestPipe, ConversionsBindNaiveInt4OnA100BeforeItsIssueDoes) {
  KernelCost naive;
  naive.bits = 4;
  naive.issued = 10.4;
  naive.alu = 3.69;
  naive.fma = 4.23;
  naive.xu = 2;
  const PipeLoad load = BusiestPipe(*FindDevice("a100-80gb"), naive, 1);
  EXPECT_EQ(load.pipe, "XU");
  EXPECT_NEAR(load.load, 2 / (9.56 / 8), .005);
}

TEST(BusiestPipe, MoreQueryHeadsCostProductsOrPasses) {
  const Device h100 = *FindDevice("h100");
  KernelCost kernel;
  kernel.bits = 4;
  kernel.issued = 5;
  const double one = BusiestPipe(h100, kernel, 1).load;
  EXPECT_NEAR(BusiestPipe(h100, kernel, 5).load, one * 9 / 5, 1e-12);  // a product a byte and head
  kernel.on_tensor_cores = true;
  kernel.q_heads = 8;
  EXPECT_EQ(BusiestPipe(h100, kernel, 8).load, one);
  EXPECT_EQ(BusiestPipe(h100, kernel, 9).load, 2 * one);
}

// A byte of its codes is a request to shared memory, which is what its kernels keep busiest: an
// H200 answers 1.74 while it reads a byte, a B200 1.16.
TEST(BusiestPipe, OfACodebookIsSharedMemoryAndBindsNowhere) {
  for (const std::string& name : DeviceNames()) {
    const Device device = *FindDevice(name);
    for (const KernelCost& kernel : KernelCosts(device.target)) {
      if (kernel.format != "tq4") continue;
      const PipeLoad load = BusiestPipe(device, kernel, kernel.q_heads);
      EXPECT_EQ(load.pipe, "shared memory") << name;
      EXPECT_LT(load.load, 1) << name;
      EXPECT_NEAR(load.load, 4 * kernel.shared / device.IssueBudgetPerByte(), 1e-9) << name;
    }
  }
}

TEST(BusiestPipe, CountsProductsOfTwoWidths) {
  KernelCost kernel;
  kernel.bits = 8;
  kernel.v_bits = 4;
  kernel.issued = 3;
  // 12 bits are two values, so a byte is two thirds of a product.
  const Device device = WithBudget(10);
  EXPECT_NEAR(BusiestPipe(device, kernel, 4).load, (3 + 3 * 2.0 / 3) / 10, 1e-12);
}

KvExplanation Explain(const char* preset, int64_t context, int64_t batch, const char* device) {
  return ExplainKv(kLlama2, *ParseKvPreset(preset), context, batch, *FindDevice(device)).value();
}

KernelCost Kernel(int bits, double issued) {
  KernelCost kernel;
  kernel.bits = bits;
  kernel.issued = issued;
  return kernel;
}

TEST(TimeOfStep, IsWeightsAndThenTheSlowerOfReadingAndInstructions) {
  const KvExplanation e = Explain("int4:g128", 4096, 8, "a100-80gb");
  // 544 MiB a sequence; of each 68 bytes 64 are codes.
  const double read_ms = 8 * 544.0 * 1048576 / 2.039e12 * 1e3;
  const WeightCost weights{.bytes = 13.48e9, .parameters = 6.74e9};
  const StepTime cheap = *TimeOfStep(e, Kernel(4, 5), weights);
  EXPECT_NEAR(cheap.kv_read_ms, read_ms, 1e-9);
  EXPECT_NEAR(cheap.kv_ms, read_ms, 1e-9);
  EXPECT_NEAR(cheap.weight_ms, 13.48e9 / 2.039e12 * 1e3, 1e-9);
  EXPECT_NEAR(cheap.total_ms, cheap.weight_ms + cheap.kv_ms, 1e-9);
  EXPECT_EQ(cheap.bound, Bound::kWeightStream);
  const StepTime costly = *TimeOfStep(e, Kernel(4, 40), weights);
  EXPECT_NEAR(costly.kv_ms, read_ms * 64 / 68 * 40 / e.device.IssueBudgetPerByte(), 1e-9);
  EXPECT_EQ(costly.bound, Bound::kKvInstructions);
  EXPECT_EQ(costly.pipe, "issue");
}

TEST(TimeOfStep, SaysWhereAnotherLimitTakesOver) {
  const WeightCost weights{.bytes = 13.48e9, .parameters = 6.74e9};
  const StepTime at = *TimeOfStep(Explain("f16", 4096, 8, "h200"), Kernel(16, 1.1), weights);
  const auto context = static_cast<int64_t>(at.equal_context_tokens);
  EXPECT_EQ(TimeOfStep(Explain("f16", context - 8, 8, "h200"), Kernel(16, 1.1), weights)->bound,
            Bound::kWeightStream);
  EXPECT_EQ(TimeOfStep(Explain("f16", context + 8, 8, "h200"), Kernel(16, 1.1), weights)->bound,
            Bound::kKvStream);
  // f16 weights are read for one multiplication and addition a sequence: the ridge in FLOP a byte.
  EXPECT_NEAR(at.weight_ridge_batch, 989e12 / 4.8e12, .1);
  const auto past = static_cast<int64_t>(at.weight_ridge_batch) + 1;
  EXPECT_EQ(TimeOfStep(Explain("f16", 1, past, "h200"), Kernel(16, 1.1), weights)->bound,
            Bound::kWeightProducts);
}

TEST(TimeOfStep, ImpossiblePairsAreRefused) {
  const KvExplanation e = Explain("int4:g128", 4096, 8, "h100");
  EXPECT_EQ(TimeOfStep(e, Kernel(2, 8), {}).status().code(), StatusCode::kInvalidArgument);
  KvExplanation cpu = e;
  cpu.device = Device{};
  cpu.device.read_bytes_per_s = 1e9;
  EXPECT_EQ(TimeOfStep(cpu, Kernel(4, 8), {}).status().code(), StatusCode::kInvalidArgument);
}

// Every step of docs/performance.md that the model is held against, to a fifth: its machine's
// memory moved by more than that from one minute to the next.
TEST(CheckAgainstMeasuredSteps, PredictsThemToAFifth) {
  const std::vector<MeasuredStep> steps = CheckAgainstMeasuredSteps();
  EXPECT_GE(steps.size(), 7u);
  for (const MeasuredStep& step : steps) {
    EXPECT_NEAR(step.predicted_ms / step.measured_ms, 1, .2)
        << step.cache << " at " << step.context_tokens << ": " << step.predicted_ms << " for "
        << step.measured_ms;
  }
}

}  // namespace
}  // namespace kvant
