// Meter: what the loops of a CUDA kernel issue for each byte they read, counted in its machine
// code.
//
// The count is exact for one compiler and one target, and needs no GPU. It says how fast a loop
// could be at most, since an instruction takes its place in the issue queue whatever else happens;
// it knows nothing of stalls, latency, occupancy or bandwidth. Predicated instructions count as
// issued, and a loop with branches inside counts every block of it once, as if all were taken.
// Thread rules: free functions, no shared state; MeterFile starts programs and writes a folder of
// its own.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

// What executes an instruction. Which one an opcode uses is undocumented in places.
enum class Pipe {
  kAlu,    // integers, logic, comparisons, moves, conversions between packed halves and floats
  kFma,    // f32 products and sums, integer products
  kHalf2,  // pairs of f16 or bf16
  kXu,     // exponentials, reciprocals, conversions of the older kind
  kFp64,
  kUniform,       // once a warp, on registers that all lanes share
  kTensor,        // matrix products
  kGlobalLoad,    // also copies from global into shared memory
  kGlobalStore,   // also atomics
  kSharedMemory,  // and tensor memory
  kLocalMemory,   // spilled registers and arrays on the stack
  kConstant,      // loads of constants by address
  kShuffle,
  kTexture,
  kControl,  // branches, barriers, votes, special registers
};
inline constexpr int kPipeCount = 15;
std::string_view PipeName(Pipe pipe);  // "alu", ...

// The pipe of an opcode with or without modifiers: "LOP3.LUT". kUnsupported names one that is not
// in the table; a count with a hole in it would look better than it is.
Result<Pipe> PipeOf(std::string_view opcode);

// One iteration of an innermost loop, of one thread.
struct LoopCount {
  int64_t begin_bytes = 0;  // of its first instruction in the kernel's code
  int64_t end_bytes = 0;    // behind its last one; code of others may lie between
  std::array<int64_t, kPipeCount> instructions{};
  int64_t loaded_bytes = 0;        // that its global loads ask for, a thread
  int64_t payload_bytes = 0;       // of these the codes or values; 0: the loop loads other things
  double metadata_bytes = 0;       // of memory, as declared
  int unroll = 1;                  // iterations of the source in one of the machine code
  std::vector<std::string> calls;  // functions it calls, whose instructions are not in the count

  int64_t Of(Pipe pipe) const { return instructions[static_cast<size_t>(pipe)]; }
  int64_t Issued() const;     // all
  int64_t CoreCount() const;  // on CUDA cores: ALU, FMA, half2, XU, f64 and uniform
  // REQUIRES: payload_bytes > 0.
  double PerByte(int64_t count) const {
    return static_cast<double>(count) / static_cast<double>(payload_bytes);
  }
  // Of memory, for each byte of payload: 1 and the metadata's share.
  double FetchedPerPayloadByte() const;
};

struct KernelMeter {
  std::string kernel;
  int target = 0;                // 80 of sm_80
  int registers = 0;             // a thread
  int64_t stack_bytes = 0;       // a thread
  int64_t shared_bytes = 0;      // a block, without what a launch adds
  int64_t spill_bytes = 0;       // that its local loads and stores move, each counted once: spilled
                                 // registers, or arrays that live on the stack
  std::vector<LoopCount> loops;  // with payload, the one that reads most first; then the others
};

struct MeterOptions {
  std::string kernel;                            // only this one; empty: all
  std::vector<int> targets = {80, 89, 90, 100};  // that a source is compiled for
  // Of a thread in one iteration of the source. 0: everything that a loop loads is payload.
  int64_t payload_bytes = 0;
  double metadata_bytes = 0;  // scales and offsets: a thread's share of them in memory
  // All that its global loads ask for, payload included: more than the two above where lanes read
  // the same bytes. 0: not known; then a loop's loads of its most frequent widths must add up to
  // the payload, or all of them to a multiple. A kernel without a loop that loads what was
  // declared, or, unrolled, a multiple, is refused.
  int64_t loaded_bytes = 0;
  std::vector<std::string> compiler_options;  // behind nvcc's other ones

  std::string nvcc;  // paths of the programs; nvcc is needed for sources only
  std::string nvdisasm;
  std::string temporary_folder;               // holds a new folder meanwhile
  const std::atomic<bool>* cancel = nullptr;  // asked when a program was interrupted
};

// Meters a cubin, or a .cu or .ptx file, which is compiled for each target. Kernels in the order of
// the file, targets one after the other. kInvalidArgument for bytes that no loop of a kernel loads
// or a kernel that is not there, kNotFound without file or program, kUnsupported for code that
// cannot be counted, kCancelled, kIo; the compiler's first error line is part of the message.
Result<std::vector<KernelMeter>> MeterFile(const std::string& path, const MeterOptions& options);

}  // namespace kvant
