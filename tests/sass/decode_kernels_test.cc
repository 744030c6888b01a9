// What src/cuda's decode kernels issue: ceilings for nvcc 13.0 (5 % for its other releases), and
// the counts that the roofline calculates with.
#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "cuda/kernel_table.h"
#include "kvant/meter.h"
#include "kvant/regime.h"
#include "sass/cuda_programs.h"

namespace kvant {
namespace {

constexpr double kSlack = 1.05;
constexpr int kTargets[] = {80, 89, 90, 100};

// All kernels of a format, read once: taking a cubin apart is what takes the time.
std::vector<KernelMeter> Meter(const TestFolder& folder, const std::string& format, int target) {
  const std::string cubin = std::string(KVANT_CUDA_BINARY_DIR) + "/decode_" + format + ".sm_" +
                            std::to_string(target) + ".cubin";
  Result<std::vector<KernelMeter>> kernels = MeterFile(cubin, RealPrograms(folder));
  EXPECT_TRUE(kernels.ok()) << kernels.status().message();
  return kernels.ok() ? std::move(kernels).value() : std::vector<KernelMeter>();
}

// The kernel's main loop, with the payload that the table declares, whose loads it must have.
LoopCount MainLoop(const KernelMeter& kernel, const cuda::KernelRow& row) {
  LoopCount loop = kernel.loops.at(0);
  EXPECT_EQ(loop.loaded_bytes,
            row.payload_bytes + row.metadata_bytes + 4);  // and the page's number
  loop.payload_bytes = row.payload_bytes;
  return loop;
}

// Instructions on CUDA cores for each byte of codes, of a whole attention loop on sm_80. With
// matrix instructions int4's and int2's were planned for a loop over K alone: both are held to
// them. Those of tq4 and of two widths are what was reached, and a little.
const std::map<std::pair<std::string, bool>, double> kCeilings = {
    {{"f16", false}, 1.1},       {{"f16", true}, .45},       {{"int8", false}, 2.8},
    {{"int8", true}, 1.1},       {{"int4", false}, 4.8},     {{"int4", true}, 2.3},
    {{"int2", false}, 8.4},      {{"int2", true}, 4.2},      {{"fp8", false}, 2.4},
    {{"fp8", true}, 1.9},        {{"tq4", false}, 2.8},      {{"tq4", true}, 1.9},
    {{"int8_int4", false}, 2.8}, {{"int8_int4", true}, 1.4}, {{"int4_int2", false}, 5.7},
    {{"int4_int2", true}, 2.8},
};
constexpr const char* kFormats[] = {"f16", "int8", "int4",      "int2",
                                    "fp8", "tq4",  "int8_int4", "int4_int2"};

void ExpectCost(const LoopCount& loop, const KernelCost& cost) {
  const std::pair<double, int64_t> counts[] = {
      {cost.issued, loop.Issued()},    {cost.alu, loop.Of(Pipe::kAlu)},
      {cost.fma, loop.Of(Pipe::kFma)}, {cost.half2, loop.Of(Pipe::kHalf2)},
      {cost.xu, loop.Of(Pipe::kXu)},   {cost.shared, loop.Of(Pipe::kSharedMemory)}};
  for (const auto& [listed, count] : counts) {
    // Listed to two digits.
    EXPECT_NEAR(listed, loop.PerByte(count), .0051 + (kSlack - 1) * listed)
        << "of " << cost.issued << " in src/roofline/kernel_costs.cc";
  }
}

const KernelCost& CostOf(const std::vector<KernelCost>& costs, const std::string& name,
                         const std::string& format) {
  return *std::find_if(costs.begin(), costs.end(), [&](const KernelCost& cost) {
    return cost.name == name && cost.format == format;
  });
}

// Those of 128 channels; and of int2 the smallest heads too, which pay the most for what a page
// costs whatever its size.
bool IsHeld(const cuda::KernelRow& row, int target) {
  if (row.name == std::string_view("kvant_decode_int2_d64_g1")) return target == 80;
  return row.head_dim == 128 && row.heads <= 8;
}

// Of all that a cubin holds: every head size on the first target, 128 channels on all.
void ExpectNoSpills(const std::vector<KernelMeter>& kernels, int target) {
  EXPECT_FALSE(kernels.empty());
  for (const KernelMeter& kernel : kernels) {
    EXPECT_EQ(kernel.spill_bytes, 0) << kernel.kernel << " on sm_" << target;
    EXPECT_EQ(kernel.stack_bytes, 0) << kernel.kernel << " on sm_" << target;
  }
}

TEST(DecodeKernels, StayBelowTheirCeilingsOnEveryTarget) {
  KVANT_NEED_NVDISASM();
  KVANT_NEED_CUBINS();
  TestFolder folder;
  std::map<std::string, int64_t> shuffles;  // of each kernel, the same on every target
  for (const std::string format : kFormats) {
    for (int target : kTargets) {
      const std::vector<KernelMeter> kernels = Meter(folder, format, target);
      ExpectNoSpills(kernels, target);
      for (const cuda::KernelRow& row : cuda::kDecodeKernels) {
        if (cuda::FormatOf(row) != format || !IsHeld(row, target)) continue;
        SCOPED_TRACE(std::string(row.name) + " on sm_" + std::to_string(target));
        const auto kernel = std::find_if(kernels.begin(), kernels.end(), [&](const KernelMeter& k) {
          return k.kernel == row.name;
        });
        ASSERT_NE(kernel, kernels.end());
        const LoopCount loop = MainLoop(*kernel, row);
        // Where a loop's bound differs by lane, shuffles of sm_80 and sm_89 become calls.
        EXPECT_TRUE(loop.calls.empty()) << loop.calls[0];
        const auto [first, is_new] = shuffles.emplace(row.name, loop.Of(Pipe::kShuffle));
        EXPECT_EQ(loop.Of(Pipe::kShuffle), first->second);
        EXPECT_GT(first->second, 0);
        if (target == 80) {
          EXPECT_LE(loop.PerByte(loop.CoreCount()),
                    kSlack * kCeilings.at({format, row.tensor_cores}));
        }
        if (row.head_dim != 128) continue;
        ExpectCost(loop, CostOf(KernelCosts(target), row.tensor_cores ? "tensor" : "core", format));
      }
    }
  }
}

TEST(OtherKernels, SpillNothing) {
  KVANT_NEED_NVDISASM();
  KVANT_NEED_CUBINS();
  TestFolder folder;
  for (const std::string name : {"encode", "merge", "free_list", "naive"}) {
    const std::string cubin = std::string(KVANT_CUDA_BINARY_DIR) + "/" + name + ".sm_80.cubin";
    const Result<std::vector<KernelMeter>> kernels = MeterFile(cubin, RealPrograms(folder));
    ASSERT_TRUE(kernels.ok()) << kernels.status().message();
    ExpectNoSpills(*kernels, 80);
  }
}

// tests/sass/scores.cu: the tensor-core kernels' loop up to the softmax. tests/simt runs it.
TEST(DecodeKernels, TheirKLoopAloneStaysBelowItsCeiling) {
  KVANT_NEED_NVDISASM();
  KVANT_NEED_CUBINS();
  TestFolder folder;
  MeterOptions options = RealPrograms(folder);
  options.targets = {80};
  options.compiler_options = {"-std=c++20", "-fmad=false", "--expt-relaxed-constexpr", "-I",
                              KVANT_SOURCE_DIR "/src"};
  const Result<std::vector<KernelMeter>> kernels =
      MeterFile(KVANT_SOURCE_DIR "/tests/sass/scores.cu", options);
  ASSERT_TRUE(kernels.ok()) << kernels.status().message();
  ASSERT_EQ(kernels->size(), 4u);
  for (const KernelMeter& kernel : *kernels) {
    SCOPED_TRACE(kernel.kernel);
    constexpr int kDim = 128,
                  kMetadataBytes = 2 * kDim / 2;  // scales and offsets of a lane's quarter
    const bool is_int4 = kernel.kernel.find("int4") != std::string::npos;
    const int lane_bytes =
        cuda::LaneBytes(is_int4 ? cuda::SideCode::kInt4 : cuda::SideCode::kInt2, kDim);
    const int column_tiles = kernel.kernel.ends_with("_g16") ? 2 : 1;
    LoopCount loop = kernel.loops.at(0);
    EXPECT_EQ(loop.loaded_bytes, lane_bytes + kMetadataBytes + 4);
    loop.payload_bytes = lane_bytes;
    // Nothing was left out: 32 products of codes, 8 of what they carry, 8 of the offsets.
    EXPECT_EQ(loop.Of(Pipe::kTensor), 48 * column_tiles);
    EXPECT_EQ(loop.Of(Pipe::kGlobalStore), 16 * column_tiles);
    EXPECT_EQ(kernel.spill_bytes, 0);
    EXPECT_TRUE(loop.calls.empty()) << loop.calls[0];
    EXPECT_LE(loop.PerByte(loop.CoreCount()),
              kSlack * kCeilings.at({is_int4 ? "int4" : "int2", true}));
    std::printf("%-28s cores %.2f, issued %.2f a byte of K\n", kernel.kernel.c_str(),
                loop.PerByte(loop.CoreCount()), loop.PerByte(loop.Issued()));
  }
}

TEST(DecodeKernels, TheNaiveOneCostsTwiceAsMuchAndConversionsBesides) {
  KVANT_NEED_NVDISASM();
  KVANT_NEED_CUBINS();
  TestFolder folder;
  MeterOptions options = RealPrograms(folder);
  options.kernel = "kvant_naive_scores_int4_d128";
  options.payload_bytes = cuda::LaneBytes(cuda::SideCode::kInt4, 128);  // of K alone
  options.loaded_bytes = 256;  // scales and offsets too, which every lane reads for itself
  const std::vector<KernelMeter> kernels =
      MeterFile(std::string(KVANT_CUDA_BINARY_DIR) + "/naive.sm_80.cubin", options).value();
  const LoopCount& loop = kernels.at(0).loops.at(0);
  EXPECT_GE(loop.PerByte(loop.CoreCount()), 9.5);
  EXPECT_NEAR(loop.PerByte(loop.Of(Pipe::kXu)), 2, 1e-12);  // two codes a byte
  ExpectCost(loop, CostOf(KernelCosts(80), "naive", "int4"));
}

}  // namespace
}  // namespace kvant
