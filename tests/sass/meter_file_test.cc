// The meter over whole files: with programs that stand in for NVIDIA's, and with these where they
// are.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "kvant/meter.h"
#include "meter/sass_for_test.h"
#include "sass/cuda_programs.h"

namespace kvant {
namespace {

namespace fs = std::filesystem;

void Put(std::string* bytes, size_t at, uint64_t number, int size) {
  bytes->resize(std::max(bytes->size(), at + static_cast<size_t>(size)));
  for (int i = 0; i < size; ++i)
    (*bytes)[at + static_cast<size_t>(i)] = static_cast<char>(number >> 8 * i);
}

// A cubin of one kernel "kernel": 40 registers, 8 bytes of stack, 1,024 of shared memory.
std::string Cubin() {
  const std::string names =
      std::string("\0.strtab\0.symtab\0.nv.info\0.nv.shared.kernel\0kernel\0", 51);
  std::string symbols(48, '\0');
  Put(&symbols, 24, 44, 4);  // symbol 1: the name at 44
  std::string info;
  for (auto [attribute, value] : {std::pair{0x2f, 40}, std::pair{0x11, 8}}) {
    const size_t at = info.size();
    Put(&info, at, 4, 1);
    Put(&info, at + 1, attribute, 1);
    Put(&info, at + 2, 8, 2);
    Put(&info, at + 4, 1, 4);
    Put(&info, at + 8, value, 4);
  }
  Put(&info, info.size(), 0x00240301, 4);  // a record of another form
  std::string file(64, '\0');
  file.replace(0, 6,
               std::string("\x7f"
                           "ELF\2\1",
                           6));
  Put(&file, 18, 190, 2);
  const struct {
    size_t name;
    uint32_t type;
    const std::string* bytes;
    uint64_t size;
  } sections[] = {{0, 0, nullptr, 0},
                  {1, 3, &names, names.size()},
                  {9, 2, &symbols, symbols.size()},
                  {17, 0x70000000, &info, info.size()},
                  {26, 8, nullptr, 1024}};
  std::string headers;
  for (const auto& section : sections) {
    const size_t at = headers.size();
    headers.resize(at + 64);
    Put(&headers, at, section.name, 4);
    Put(&headers, at + 4, section.type, 4);
    Put(&headers, at + 24, file.size(), 8);
    Put(&headers, at + 32, section.size, 8);
    Put(&headers, at + 40, 1, 4);
    if (section.bytes != nullptr) file += *section.bytes;
  }
  Put(&file, 40, file.size(), 8);
  Put(&file, 58, 64, 2);
  Put(&file, 60, 5, 2);
  Put(&file, 62, 1, 2);
  return file + headers;
}

std::string Listing() {
  return ListingJson(FunctionJson("kernel", 0,
                                  {"LDG.E.128 R4,[R2.64]", "STL.64 [R1],R4", "FFMA R1,R1,R2,R3",
                                   "@P0 BRA 0x0", "EXIT"}) +
                     "," + FunctionJson("$helper", 0x50, {"RET.REL.NODEC R4,kernel"}));
}

TEST(MeterFile, ReadsACubinThroughADisassembler) {
  TestFolder folder;
  folder.Write("listing.json", Listing());
  // Names that a shell would take apart must reach the program whole.
  const std::string cubin = folder.Write("-a $(touch gone) 'b\".cubin", Cubin());
  MeterOptions options;
  options.temporary_folder = folder.temporary();
  options.nvdisasm = folder.WriteProgram(
      "nvdisasm",
      "[ \"$1\" = -json ] && [ -f \"$2\" ] && [ $# = 2 ] && cat \"${0%/*}/listing.json\"");
  const std::vector<KernelMeter> kernels = MeterFile(cubin, options).value();
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].kernel, "kernel");
  EXPECT_EQ(kernels[0].target, 89);
  EXPECT_EQ(kernels[0].registers, 40);
  EXPECT_EQ(kernels[0].stack_bytes, 8);
  EXPECT_EQ(kernels[0].shared_bytes, 1024);
  EXPECT_EQ(kernels[0].spill_bytes, 8);
  ASSERT_EQ(kernels[0].loops.size(), 1u);
  EXPECT_EQ(kernels[0].loops[0].payload_bytes, 16);
  EXPECT_TRUE(folder.IsClean());
  EXPECT_FALSE(fs::exists("gone"));
}

TEST(MeterFile, CutAndChangedCubinsAreRefusedOrRead) {
  TestFolder folder;
  folder.Write("listing.json", Listing());
  MeterOptions options;
  options.temporary_folder = folder.temporary();
  options.nvdisasm = "/nowhere/nvdisasm";  // never reached by a cubin that is refused
  const std::string whole = Cubin();
  for (size_t size = 0; size < whole.size(); size += 7) {
    const Status status =
        MeterFile(folder.Write("cut.cubin", whole.substr(0, size)), options).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << size << " " << status.message();
  }
  EXPECT_EQ(MeterFile(folder.Write("whole.cubin", whole), options).status().code(),
            StatusCode::kNotFound);               // of the program
  for (size_t at = 0; at < whole.size(); ++at) {  // nothing outside of the bytes is read (ASan)
    std::string changed = whole;
    changed[at] = '\xff';
    EXPECT_FALSE(MeterFile(folder.Write("changed.cubin", changed), options).ok());
  }
  EXPECT_TRUE(folder.IsClean());
}

TEST(MeterFile, WhatGoesWrongIsOneSentence) {
  TestFolder folder;
  const std::string cubin = folder.Write("a.cubin", Cubin()), source = folder.Write("a.cu", "x");
  MeterOptions options;
  options.temporary_folder = folder.temporary();
  const auto refused = [&](const std::string& path, StatusCode code, const char* words) {
    const Status status = MeterFile(path, options).status();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    EXPECT_TRUE(folder.IsClean());
  };
  refused(folder.path() / "none.cubin", StatusCode::kNotFound, "none.cubin");
  options.nvcc = folder.WriteProgram(
      "nvcc",
      "echo remark >&2; echo 'a.cu(1): error: no such thing' >&2; echo 1 error >&2; exit 2");
  refused(source, StatusCode::kUnsupported, "a.cu(1): error: no such thing");
  options.nvcc = folder.WriteProgram("nvcc", "kill -INT $$");
  refused(source, StatusCode::kCancelled, "interrupted");
  options.nvcc = folder.WriteProgram("nvcc", "kill -SEGV $$");
  refused(source, StatusCode::kIo, "signal 11");
  options.nvdisasm = folder.WriteProgram("nvdisasm", "echo '{'");
  refused(cubin, StatusCode::kCorrupt, "disassembly");
  folder.Write("listing.json", Listing());
  options.nvdisasm = folder.WriteProgram("nvdisasm", "cat \"${0%/*}/listing.json\"");
  options.kernel = "other";
  refused(cubin, StatusCode::kInvalidArgument, "there are kernel");
  options.kernel = "kernel";
  options.payload_bytes = 12;
  refused(cubin, StatusCode::kInvalidArgument, "1 x 16");
  options.temporary_folder = folder.path() / "absent";
  const Status no_folder = MeterFile(cubin, options).status();
  EXPECT_EQ(no_folder.code(), StatusCode::kIo) << no_folder.message();
}

// ---- with nvcc and nvdisasm

std::vector<KernelMeter> Trial(const MeterOptions& options) {
  Result<std::vector<KernelMeter>> kernels =
      MeterFile(KVANT_SOURCE_DIR "/tests/sass/trial.cu", options);
  EXPECT_TRUE(kernels.ok()) << kernels.status().message();
  return kernels.ok() ? std::move(kernels).value() : std::vector<KernelMeter>();
}

const KernelMeter& Named(const std::vector<KernelMeter>& kernels, const char* name, int target) {
  return *std::find_if(kernels.begin(), kernels.end(), [&](const KernelMeter& k) {
    return k.kernel == name && k.target == target;
  });
}

TEST(MeterFile, CountsWhatTheCompilerMakesOfTrialKernels) {
  KVANT_NEED_NVCC();
  KVANT_NEED_NVDISASM();
  TestFolder folder;
  MeterOptions options = RealPrograms(folder);
  const std::vector<int> targets = options.targets = {80, 100};
  const std::vector<KernelMeter> kernels = Trial(options);
  EXPECT_TRUE(folder.IsClean());
  ASSERT_EQ(kernels.size(), 5 * targets.size());
  for (int target : targets) {
    SCOPED_TRACE(target);
    const LoopCount& naive = Named(kernels, "naive_int4", target).loops.at(0);
    EXPECT_EQ(naive.payload_bytes, 20);  // all that it loads
    EXPECT_EQ(naive.Of(Pipe::kShuffle), 2);
    EXPECT_EQ(naive.Of(Pipe::kGlobalStore), 1);
    // Shift, mask, conversion and two multiply-adds a code; the first code needs no shift.
    EXPECT_GE(naive.CoreCount(), 32 * 5 - 8);
    EXPECT_EQ(naive.Of(Pipe::kXu), target == 80 ? 32 : 0);  // a conversion a code, or I2FP

    for (const char* name : {"unproven_uniform", "bound_by_lane"}) {
      SCOPED_TRACE(name);
      const LoopCount& loop = Named(kernels, name, target).loops.at(0);
      const bool five = loop.payload_bytes == 16;
      EXPECT_EQ(loop.Of(Pipe::kShuffle), five ? 5 : loop.payload_bytes / 4);
      EXPECT_TRUE(loop.calls.empty()) << loop.calls[0];
      EXPECT_LE(loop.Issued(), five ? 24 : 12 * loop.payload_bytes / 4);
    }

    const KernelMeter& holds = Named(kernels, "holds_memory", target);
    EXPECT_EQ(holds.stack_bytes, 128);
    // From sm_90 on the toolkit keeps 1 KiB of each block for itself.
    EXPECT_EQ(holds.shared_bytes, target < 90 ? 1024 : 2048);
    EXPECT_GE(holds.spill_bytes, 128);
    EXPECT_GT(holds.registers, 0);
    EXPECT_EQ(Named(kernels, "naive_int4", target).spill_bytes, 0);
  }
}

TEST(MeterFile, AnUnrolledLoopIsAMultipleOfWhatWasDeclared) {
  KVANT_NEED_NVCC();
  KVANT_NEED_NVDISASM();
  TestFolder folder;
  MeterOptions options = RealPrograms(folder);
  options.targets = {90};
  options.kernel = "unrolled";
  options.payload_bytes = 4;
  const std::vector<KernelMeter> kernels = Trial(options);
  ASSERT_EQ(kernels.size(), 1u);
  ASSERT_EQ(kernels[0].loops.size(), 2u);
  EXPECT_GT(kernels[0].loops[0].unroll, 1);
  EXPECT_EQ(kernels[0].loops[0].payload_bytes, 4 * kernels[0].loops[0].unroll);
  EXPECT_EQ(kernels[0].loops[1].unroll, 1);  // the rest
}

}  // namespace
}  // namespace kvant
