// Every decode kernel: its PTX against the shim's run of its source, bit for bit, and what the PTX
// alone can show: wrong assembly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "ptx/ptx_decode.h"

namespace kvant::ptx {
namespace {

DecodeInputs InputsOf(const simt::DecodeWorld& world) {
  return {.rows = simt::DecodeWorld::kRows,
          .heads = world.heads,
          .head_dim = world.dim,
          .pages = world.pages,
          .score_scale = world.score_scale,
          .payload = world.payload,
          .metadata = world.metadata,
          .table = world.table,
          .ranges = world.ranges,
          .queries = world.queries,
          .levels = world.levels};
}

// How many of a's values have other bits than b's.
int Differences(const std::vector<float>& a, const std::vector<float>& b) {
  int count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += std::memcmp(&a[i], &b[i], sizeof(float)) != 0;
  return count;
}

void ExpectSameBits(const simt::Decoded& a, const simt::Decoded& b) {
  EXPECT_EQ(Differences(a.partial_out, b.partial_out), 0);
  EXPECT_EQ(Differences(a.partial_state, b.partial_state), 0);
  EXPECT_EQ(Differences(a.out, b.out), 0);
  EXPECT_TRUE(std::none_of(a.out.begin(), a.out.end(), [](float x) { return std::isnan(x); }));
}

void ExpectTheShimsBits(const simt::DecodeKernel& kernel, const std::string& file) {
  const cuda::KernelRow& row = kernel.row;
  const simt::DecodeWorld world(row.page, row.head_dim, row.heads, simt::kRanges, 1);
  const DecodeInputs in = InputsOf(world);
  const PtxDecoded by_ptx = DecodeByPtx(PtxOf(file), row.name, in);
  ASSERT_EQ(by_ptx.fault, "");
  const simt::Decoded by_shim = simt::Decode(kernel.thread, world, {});
  ASSERT_EQ(by_shim.fault, "");
  ExpectSameBits(by_ptx, by_shim);
}

// By file: one parse serves all kernels of a format.
class PtxDecode : public testing::TestWithParam<std::string> {};

TEST_P(PtxDecode, GivesTheShimsBits) {
  KVANT_SKIP_WITHOUT_PTX();
  for (const simt::DecodeKernel& kernel : simt::kDecodeKernels) {
    SCOPED_TRACE(kernel.row.name);
    if (FileOfKernel(kernel.row.name) == GetParam()) ExpectTheShimsBits(kernel, GetParam());
  }
}
INSTANTIATE_TEST_SUITE_P(Ptx, PtxDecode, testing::ValuesIn(DecodeFiles()), NameOfFile);

// From sm_89 on E4M3 is converted by an instruction, to halves 256 times as large.
TEST(PtxDecodeOfSm89, GivesTheShimsBits) {
  KVANT_SKIP_WITHOUT_PTX();
  const std::string file = "decode_fp8.compute_89";
  EXPECT_NE(PtxText(file).find("cvt.rn.f16x2.e4m3x2"), std::string::npos);
  for (const simt::DecodeKernel& kernel : simt::kDecodeKernels) {
    SCOPED_TRACE(kernel.row.name);
    const bool is_there = kernel.row.page == cuda::kFp8Page && kernel.row.head_dim == 128;
    if (is_there) ExpectTheShimsBits(kernel, file);
  }
}

using simt::KernelNamed;

TEST(PtxDecodeSchedules, GiveTheSameBits) {
  KVANT_SKIP_WITHOUT_PTX();
  const std::string name = "kvant_decode_int4_d64_g8";
  const simt::DecodeWorld world(cuda::kInt4Page, 64, 8, simt::kRanges, 2);
  const DecodeInputs in = InputsOf(world);
  const PtxModule& module = PtxOf("decode_int4");
  const PtxDecoded first = DecodeByPtx(module, name, in);
  ASSERT_EQ(first.fault, "");
  using Warps = Schedule::Warps;
  for (const Schedule& schedule :
       {Schedule{Warps::kRandom, 1}, Schedule{Warps::kRandom, 2}, Schedule{Warps::kRunAhead, 0},
        Schedule{Warps::kRunAhead, 3}, Schedule{Warps::kRoundRobin, 0, true}}) {
    const PtxDecoded other = DecodeByPtx(module, name, in, schedule);
    ASSERT_EQ(other.fault, "");
    ExpectSameBits(other, first);
  }
}

// Faults in assembly that the shim's branch does not contain, planted in the PTX one by one.

// The text of kernel `name`, from its .entry to its closing brace, changed by `change`.
std::string WithChangedKernel(std::string text, const std::string& name,
                              const std::function<int(std::string*)>& change) {
  const size_t begin = text.find(".entry " + name + "(");
  const size_t end = std::min(text.find(".entry", begin + 1), text.size());
  std::string kernel = text.substr(begin, end - begin);
  EXPECT_GT(change(&kernel), 0) << "nothing to plant the fault in";
  return text.replace(begin, end - begin, kernel);
}

// Exchanges the operands `first` and `second` (counted by commas, braces are operands' own) of
// every instruction that begins with `opcode`.
int SwapOperands(std::string* text, const std::string& opcode, size_t first, size_t second) {
  int count = 0;
  for (size_t at = text->find(opcode + " "); at != text->npos; at = text->find(opcode + " ", at)) {
    at += opcode.size();
    const size_t end = text->find(';', at);
    std::vector<std::string> parts;
    std::string all = text->substr(at, end - at);
    for (size_t comma = 0; comma != all.npos;) {
      const size_t next = all.find(',', comma + (parts.empty() ? 0 : 1));
      const size_t from = parts.empty() ? 0 : comma + 1;
      parts.push_back(all.substr(from, next == all.npos ? all.npos : next - from));
      comma = next;
    }
    // What is exchanged are the registers, not the braces around a list.
    const auto core = [](const std::string& part) {
      const size_t begin = part.find_first_not_of(" \t{");
      return std::pair(begin, part.find_last_not_of(" \t}") + 1 - begin);
    };
    const auto [a, a_size] = core(parts[first]);
    const auto [b, b_size] = core(parts[second]);
    const std::string kept = parts[first].substr(a, a_size);
    parts[first].replace(a, a_size, parts[second].substr(b, b_size));
    parts[second].replace(b, b_size, kept);
    std::string joined;
    for (const std::string& part : parts) joined += (joined.empty() ? "" : ",") + part;
    text->replace(at, end - at, joined);
    ++count;
  }
  return count;
}

int ReplaceAll(std::string* text, const std::string& from, const std::string& to) {
  int count = 0;
  for (size_t at = text->find(from); at != text->npos; at = text->find(from, at + to.size())) {
    text->replace(at, from.size(), to);
    ++count;
  }
  return count;
}

// Without any one of its barriers a decode kernel races, or reads what is not there yet.
TEST(PtxBarriers, AreAllNeeded) {
  KVANT_SKIP_WITHOUT_PTX();
  const std::string barrier = "bar.sync \t0;";
  for (const std::string name : {"kvant_decode_int4_d64_g1", "kvant_decode_int4_d64_g8"}) {
    const simt::DecodeKernel& kernel = KernelNamed(name);
    const simt::DecodeWorld world(kernel.row.page, kernel.row.head_dim, kernel.row.heads,
                                  simt::kRanges, 4);
    const DecodeInputs in = InputsOf(world);
    size_t count = 1;
    for (size_t i = 0; i < count; ++i) {
      const auto drop = [&](std::string* text) {
        count = 0;
        for (size_t at = text->find(barrier); at != text->npos; at = text->find(barrier, at + 1)) {
          if (count++ == i) text->replace(at, 3, "// ");
        }
        return static_cast<int>(count);
      };
      const Result<PtxModule> module =
          PtxModule::Parse(WithChangedKernel(PtxText("decode_int4"), name, drop));
      ASSERT_TRUE(module.ok()) << module.status().message();
      const std::string fault = DecodeByPtx(*module, name, in).fault;
      EXPECT_NE(fault.find("of 'shared memory'"), std::string::npos)
          << name << " barrier " << i << ": " << fault;
    }
    EXPECT_GT(count, 2u);
  }
}

struct Plant {
  std::string name;
  std::string kernel;
  std::function<int(std::string*)> change;
};

const std::string kMma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";

const Plant kPlants[] = {
    // d, a, b, c, table: the mask and the magic change places
    {"Lop3Operands", "kvant_decode_int4_d64_g1",
     [](std::string* text) { return SwapOperands(text, "lop3.b32", 2, 3); }},
    {"Lop3Table", "kvant_decode_int4_d64_g1",
     [](std::string* text) { return ReplaceAll(text, ", 0xea;", ", 0xe8;"); }},
    // {d0..3}, {a0..3}, {b0, b1}, {c0..3}
    {"MmaOrderOfA", "kvant_decode_int4_d64_g8",
     [](std::string* text) { return SwapOperands(text, kMma, 5, 6); }},
    {"MmaOrderOfB", "kvant_decode_int4_d64_g8",
     [](std::string* text) { return SwapOperands(text, kMma, 8, 9); }},
    {"MmaOrderOfC", "kvant_decode_int4_d64_g8",
     [](std::string* text) { return SwapOperands(text, kMma, 10, 12); }},
    {"HalfFmaOperands", "kvant_decode_int4_d64_g1",
     [](std::string* text) { return SwapOperands(text, "fma.rn.f16x2", 2, 3); }},
    {"PackedOrder", "kvant_decode_int4_d64_g8",
     [](std::string* text) { return SwapOperands(text, "cvt.rn.f16x2.f32", 1, 2); }},
    {"PrmtOperands", "kvant_decode_int8_d64_g1",
     [](std::string* text) { return SwapOperands(text, "prmt.b32", 1, 2); }},
    {"ByteOrderOfE4M3", "kvant_decode_fp8_d64_g8",
     [](std::string* text) { return ReplaceAll(text, "17218;", "16960;"); }},  // 0x4342, 0x4240
    {"LoadOrder", "kvant_decode_int4_d64_g8",
     [](std::string* text) { return SwapOperands(text, "ld.global.nc.v4.u32", 1, 2); }},
};

class PtxPlants : public testing::TestWithParam<Plant> {};

TEST_P(PtxPlants, AreCaught) {
  KVANT_SKIP_WITHOUT_PTX();
  const Plant& plant = GetParam();
  const simt::DecodeKernel& kernel = KernelNamed(plant.kernel);
  const simt::DecodeWorld world(kernel.row.page, kernel.row.head_dim, kernel.row.heads,
                                simt::kRanges, 3);
  const DecodeInputs in = InputsOf(world);
  const std::string text =
      WithChangedKernel(PtxText(FileOfKernel(plant.kernel)), plant.kernel, plant.change);
  const Result<PtxModule> module = PtxModule::Parse(text);
  ASSERT_TRUE(module.ok()) << module.status().message();
  const PtxDecoded by_ptx = DecodeByPtx(*module, plant.kernel, in);
  const simt::Decoded by_shim = simt::Decode(kernel.thread, world, {});
  EXPECT_TRUE(!by_ptx.fault.empty() || Differences(by_ptx.out, by_shim.out) > 0);
}

std::string NameOfPlant(const testing::TestParamInfo<Plant>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Ptx, PtxPlants, testing::ValuesIn(kPlants), NameOfPlant);

}  // namespace
}  // namespace kvant::ptx
