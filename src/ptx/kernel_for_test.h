// Kernels written into tests: a body is wrapped into a PTX text, run, and its output given back.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/run.h"

namespace kvant::ptx {

// The body sees the addresses of an input and an output as %in and %out; %t is the thread's index
// in the block and %t4 that times 4, as b64. It starts on line kFirstBodyLine.
inline constexpr int kFirstBodyLine = 17;

inline std::string KernelText(std::string_view body, std::string_view declarations = "") {
  std::string text = R"(.version 9.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {
  .reg .pred %p<16>;
  .reg .b16 %h<64>;
  .reg .b32 %r<128>;
  .reg .b64 %d<64>;
  .reg .b32 %t;
  .reg .b64 %in, %out, %t4;
  )";
  text += declarations;
  text += R"(
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  mov.u32 %t, %tid.x;
  mul.wide.u32 %t4, %t, 4;
  // body
)";
  text += body;
  text += "\n  ret;\n}\n";
  return text;
}

template <typename T>
std::span<std::byte> WritableBytes(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

struct TestRun {
  std::string fault;  // of parsing or running; empty when all is well
  Counts counts;
};

// Runs kernel k of `text` with the addresses of `in` and `out`; `out` counts as undefined at first.
template <typename In, typename Out>
TestRun RunText(const std::string& text, const std::vector<In>& in, std::vector<Out>* out,
                RunOptions options = {}) {
  const Result<PtxModule> module = PtxModule::Parse(text);
  if (!module.ok()) return {module.status().message(), {}};
  DeviceMemory memory;
  const uint64_t addresses[] = {memory.AddInput("in", std::as_bytes(std::span(in))),
                                memory.AddUndefined("out", WritableBytes(*out))};
  const Result<Counts> counts = RunKernel(*module, **module->Find("k"),
                                          std::as_bytes(std::span(addresses)), &memory, options);
  if (!counts.ok()) return {counts.status().message(), {}};
  return {"", *counts};
}

template <typename In, typename Out>
TestRun RunBody(std::string_view body, const std::vector<In>& in, std::vector<Out>* out,
                RunOptions options = {.block = {32}}) {
  return RunText(KernelText(body), in, out, options);
}

inline std::string AtBodyLine(int line) {
  return "line " + std::to_string(kFirstBodyLine + line - 1) + ": ";
}

#define EXPECT_FAULT(run, part)                        \
  EXPECT_NE((run).fault.find(part), std::string::npos) \
      << "fault: '" << (run).fault << "', expected in it: " << (part)

// What `instruction` gives for each row of up to four 32-bit sources, %r1 to %r4; it writes %r0.
inline std::vector<uint32_t> Evaluate(std::string_view instruction,
                                      const std::vector<std::array<uint32_t, 4>>& rows) {
  std::vector<uint32_t> out(rows.size());
  const std::string body = R"(
  mul.wide.u32 %d0, %t, 16;
  add.s64 %d0, %in, %d0;
  ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0];
  )" + std::string(instruction) +
                           R"(
  add.s64 %d1, %out, %t4;
  st.global.b32 [%d1], %r0;
  )";
  const TestRun run = RunBody(body, rows, &out, {.block = {static_cast<uint32_t>(rows.size())}});
  EXPECT_EQ(run.fault, "") << instruction;
  return out;
}

inline uint32_t EvaluateOne(std::string_view instruction, uint32_t a = 0, uint32_t b = 0,
                            uint32_t c = 0, uint32_t d = 0) {
  return Evaluate(instruction, {{a, b, c, d}})[0];
}

}  // namespace kvant::ptx
