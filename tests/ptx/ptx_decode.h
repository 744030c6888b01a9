// One decode step by the interpreter: a decode kernel, and the merge behind it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda/arguments.h"
#include "cuda/isa.h"
#include "ptx/ptx_files.h"
#include "simt/decode_run.h"

namespace kvant::ptx {

// decode_int4 of kvant_decode_int4_d128_g8
inline std::string FileOfKernel(const std::string& kernel) {
  const std::string rest = kernel.substr(std::string("kvant_").size());
  return rest.substr(0, rest.find("_d", std::string("decode").size()));
}

// The files that hold all decode kernels.
inline std::vector<std::string> DecodeFiles() {
  std::vector<std::string> files;
  for (const cuda::KernelRow& row : cuda::kDecodeKernels) {
    const std::string file = FileOfKernel(row.name);
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  }
  return files;
}
inline std::string NameOfFile(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}

// What a decode kernel reads.
struct DecodeInputs {
  int rows = 1, heads = 1, head_dim = 64, pages = 1;  // pages a row
  int splits = simt::kSplits;
  float score_scale = 0.1f;
  std::span<const std::byte> payload, metadata;
  std::span<const uint32_t> table;           // [rows][pages]
  std::span<const cuda::TokenRange> ranges;  // [rows]
  std::span<const float> queries;            // [rows][heads][head_dim]
  DeviceLevels levels = {};
};

struct PtxDecoded : simt::Decoded {
  Counts counts;  // of the decode kernel

  explicit PtxDecoded(const DecodeInputs& in) {
    const auto states = static_cast<size_t>(in.rows * in.heads * in.splits);
    partial_out.resize(states * static_cast<size_t>(in.head_dim), NAN);
    partial_state.resize(states * 2, NAN);
    out.resize(static_cast<size_t>(in.rows * in.heads * in.head_dim), NAN);
  }
};

// `module` holds the decode kernel.
inline PtxDecoded DecodeByPtx(const PtxModule& module, const std::string& name,
                              const DecodeInputs& in, Schedule schedule = {}) {
  PtxDecoded outputs(in);
  DeviceMemory memory;
  cuda::DecodeArguments args{};
  args.page_table_stride = in.pages;
  args.group_ratio = in.heads;
  args.slots = in.splits;
  args.pages_per_split = (in.pages + in.splits - 1) / in.splits;
  args.score_scale = in.score_scale;
  args.payload = DevicePointer<const unsigned char>(memory.AddInput("payload", in.payload));
  if (!in.metadata.empty()) {
    args.metadata = DevicePointer<const unsigned char>(memory.AddInput("metadata", in.metadata));
  }
  args.levels = DevicePointer<const uint16_t>(
      memory.AddInput("levels", std::as_bytes(std::span(in.levels.halves))));
  args.level_unit = in.levels.unit;
  args.page_table =
      DevicePointer<const uint32_t>(memory.AddInput("page_table", std::as_bytes(in.table)));
  args.ranges =
      DevicePointer<const cuda::TokenRange>(memory.AddInput("ranges", std::as_bytes(in.ranges)));
  args.queries = DevicePointer<const float>(memory.AddInput("queries", std::as_bytes(in.queries)));
  args.partial_out = Output(&memory, "partial_out", &outputs.partial_out);
  args.partial_state = Output(&memory, "partial_state", &outputs.partial_state);
  RunOptions options{.grid = {static_cast<uint32_t>(in.splits), static_cast<uint32_t>(in.rows)},
                     .block = {cuda::kBlockThreads},
                     .schedule = schedule};
  const Result<Counts> decoded = RunPtx(module, name, args, &memory, options);
  if (!decoded.ok()) {
    outputs.fault = decoded.status().message();
    return outputs;
  }
  outputs.counts = *decoded;
  options.grid.x = static_cast<uint32_t>(in.heads);
  const cuda::MergeArguments merge{
      args.partial_out, args.partial_state, InOut(&memory, "out", &outputs.out),
      in.heads,         in.splits,          in.head_dim};
  const Result<Counts> merged = RunPtx(PtxOf("merge"), "kvant_merge", merge, &memory, options);
  if (!merged.ok()) outputs.fault = merged.status().message();
  return outputs;
}

}  // namespace kvant::ptx
