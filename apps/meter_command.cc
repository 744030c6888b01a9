// kvant meter: instructions per byte of a CUDA kernel's loops, from its machine code, beside what
// devices issue in the time of a byte.
#include <fmt/core.h>

#include <memory>
#include <vector>

#include "command.h"
#include "cuda_tools.h"
#include "failure.h"
#include "kvant/meter.h"
#include "kvant/regime.h"
#include "kvant/roofline.h"
#include "model_options.h"
#include "options.h"
#include "output.h"
#include "report.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant meter kernel.cu --kernel decode_int4 --bytes-per-iteration 64 --metadata-bytes 4\n"
    "  kvant meter kernel.cubin --json\n"
    "\n"
    "Each row is an innermost loop that reads global memory, of one thread: instructions issued "
    "and by "
    "pipe, over\nthe bytes that its loads ask for, or of these the declared ones.";

struct MeterFlags {
  std::string file, targets = "sm_80,sm_89,sm_90,sm_100";
  MeterOptions options;
  bool json = false;
};

// "sm_80,90"
std::vector<int> ParseTargets(const std::string& text) {
  std::vector<int> targets;
  for (std::string part : SplitList(text)) {
    if (part.starts_with("sm_")) part.erase(0, 3);
    const std::vector<int> number = ParseIntList("--arch", part, 75, 999);
    targets.insert(targets.end(), number.begin(), number.end());
  }
  return targets;
}

// The loops that a row can be made of.
std::vector<LoopCount> LoopsWithPayload(const KernelMeter& kernel) {
  std::vector<LoopCount> loops;
  for (const LoopCount& loop : kernel.loops) {
    if (loop.payload_bytes > 0) loops.push_back(loop);
  }
  return loops;
}

std::string TargetName(int target) { return fmt::format("sm_{}", target); }

std::vector<std::string> CountCells(const KernelMeter& kernel, const LoopCount& loop) {
  std::vector<std::string> cells = {kernel.kernel, TargetName(kernel.target),
                                    fmt::format("{:#x}", loop.begin_bytes),
                                    fmt::format("{}", loop.payload_bytes)};
  const auto add = [&](int64_t count) {
    cells.push_back(fmt::format("{:.2f}", loop.PerByte(count)));
  };
  add(loop.Issued());
  cells.push_back(
      fmt::format("{:.2f}", loop.PerByte(loop.Issued()) / loop.FetchedPerPayloadByte()));
  add(loop.CoreCount());
  for (Pipe pipe : {Pipe::kAlu, Pipe::kHalf2, Pipe::kFma, Pipe::kXu, Pipe::kUniform, Pipe::kTensor,
                    Pipe::kShuffle, Pipe::kGlobalLoad, Pipe::kGlobalStore, Pipe::kSharedMemory}) {
    add(loop.Of(pipe));
  }
  return cells;
}

std::string CountsText(const std::vector<KernelMeter>& kernels) {
  Table table({"kernel", "arch", "loop", "bytes", "issued", "/fetched", "cores", "alu", "half2",
               "fma", "xu", "uniform", "tensor", "shfl", "ldg", "stg", "shared"});
  for (const KernelMeter& kernel : kernels) {
    for (const LoopCount& loop : LoopsWithPayload(kernel)) table.Add(CountCells(kernel, loop));
  }
  return "Instructions a thread for each byte of payload\n" + table.Text() +
         "  bytes: of a thread in one iteration. /fetched: issued for each byte of payload and "
         "metadata. cores: on\n  CUDA cores, without loads, stores, shuffles, control and matrix "
         "products.\n";
}

std::string ResourcesText(const std::vector<KernelMeter>& kernels) {
  Table table(
      {"kernel", "arch", "registers", "stack B", "shared B", "spilled B", "unrolled", "calls"});
  for (const KernelMeter& kernel : kernels) {
    std::string unrolled, calls;
    for (const LoopCount& loop : LoopsWithPayload(kernel)) {
      unrolled += fmt::format("{}{}", unrolled.empty() ? "" : ",", loop.unroll);
      for (const std::string& call : loop.calls) calls += (calls.empty() ? "" : ",") + call;
    }
    table.Add({kernel.kernel, TargetName(kernel.target), fmt::format("{}", kernel.registers),
               Grouped(kernel.stack_bytes), Grouped(kernel.shared_bytes),
               Grouped(kernel.spill_bytes), unrolled, calls});
  }
  return "What the kernels hold\n" + table.Text();
}

// Of each byte that the loop fetches.
KernelCost CostOf(const LoopCount& loop) {
  const auto of = [&](int64_t count) { return loop.PerByte(count) / loop.FetchedPerPayloadByte(); };
  KernelCost cost;
  cost.bits = 8;  // speaks of further query heads only, of which there are none here
  cost.issued = of(loop.Issued());
  cost.alu = of(loop.Of(Pipe::kAlu));
  cost.fma = of(loop.Of(Pipe::kFma));
  cost.half2 = of(loop.Of(Pipe::kHalf2));
  cost.xu = of(loop.Of(Pipe::kXu));
  return cost;
}

// What a loop takes of the instructions that fit into the time of its bytes.
std::string BudgetsText(const std::vector<KernelMeter>& kernels) {
  Table table(
      {"kernel", "device", "issued", "budget", "of it", "xu", "budget", "of it", "the limit"});
  for (const KernelMeter& kernel : kernels) {
    const std::vector<LoopCount> loops = LoopsWithPayload(kernel);
    if (loops.empty()) continue;
    const LoopCount& loop = loops[0];
    for (const std::string& name : DeviceNames()) {
      const Device device = Unwrap(FindDevice(name));
      if (device.target != kernel.target) continue;
      const KernelCost cost = CostOf(loop);
      const double issued = cost.issued, xu = cost.xu;
      const double xu_budget = device.BudgetPerByte(LanesOf(device.target).xu);
      const PipeLoad busiest = BusiestPipe(device, cost, 1);
      const double budget = device.IssueBudgetPerByte();
      table.Add({kernel.kernel, name, fmt::format("{:.2f}", issued), fmt::format("{:.2f}", budget),
                 fmt::format("{:.0f} %", 100 * issued / budget), fmt::format("{:.2f}", xu),
                 fmt::format("{:.2f}", xu_budget), fmt::format("{:.0f} %", 100 * xu / xu_budget),
                 busiest.load > 1 ? "instructions (" + busiest.pipe + ")" : "memory"});
    }
  }
  return "Against what a device issues while it reads a byte (payload and metadata), first loop of "
         "each "
         "kernel\n" +
         table.Text();
}

Json LoopJson(const KernelMeter& kernel, const LoopCount& loop) {
  Json json = {
      {"kernel", kernel.kernel},
      {"arch", TargetName(kernel.target)},
      {"loop_begin_bytes", loop.begin_bytes},
      {"loop_end_bytes", loop.end_bytes},
      {"payload_bytes_per_iteration", loop.payload_bytes},
      {"unroll", loop.unroll},
      {"loaded_bytes_per_iteration", loop.loaded_bytes},
      {"issued_per_byte", loop.PerByte(loop.Issued())},
      {"issued_per_fetched_byte", loop.PerByte(loop.Issued()) / loop.FetchedPerPayloadByte()},
      {"core_per_byte", loop.PerByte(loop.CoreCount())}};
  for (int pipe = 0; pipe < kPipeCount; ++pipe) {
    std::string name(PipeName(static_cast<Pipe>(pipe)));
    for (char& c : name) c = c == ' ' ? '_' : c;
    json[name + "_per_byte"] = loop.PerByte(loop.Of(static_cast<Pipe>(pipe)));
  }
  json["fetched_per_useful_byte"] = loop.FetchedPerPayloadByte();
  json["registers"] = kernel.registers;
  json["stack_bytes"] = kernel.stack_bytes;
  json["shared_bytes"] = kernel.shared_bytes;
  json["spill_bytes"] = kernel.spill_bytes;
  json["calls"] = loop.calls;
  return json;
}

int RunMeter(const MeterFlags& flags) {
  MeterOptions options = flags.options;
  options.targets = ParseTargets(flags.targets);
  const bool is_source = flags.file.ends_with(".cu") || flags.file.ends_with(".ptx");
  if (is_source) options.nvcc = FindNvcc();
  options.nvdisasm = FindNvdisasm();
  options.temporary_folder = TemporaryParent();
  CatchInterrupt();
  options.cancel = &Interrupted();
  const std::vector<KernelMeter> kernels = Unwrap(MeterFile(flags.file, options));
  size_t rows = 0;
  for (const KernelMeter& kernel : kernels) rows += LoopsWithPayload(kernel).size();
  if (rows == 0) {
    throw Failure(kExitFailed,
                  fmt::format("'{}': no innermost loop reads global memory", flags.file));
  }
  if (flags.json) {
    Json json = Json::array();
    for (const KernelMeter& kernel : kernels) {
      for (const LoopCount& loop : LoopsWithPayload(kernel)) json.push_back(LoopJson(kernel, loop));
    }
    Write(Dump(json, 2));
    return kExitDone;
  }
  Write(CountsText(kernels) + "\n" + ResourcesText(kernels) + "\n" + BudgetsText(kernels));
  return kExitDone;
}

}  // namespace

void AddMeter(CLI::App& root, Action* action) {
  const auto o = std::make_shared<MeterFlags>();
  CLI::App* const command = root.add_subcommand(
      "meter", "Instructions for each byte that a CUDA kernel reads, from its machine code");
  command->footer(kFooter);
  command->add_option("file", o->file, "A .cu or .ptx file, which nvcc compiles, or a cubin")
      ->required()
      ->type_name("FILE");
  command->add_option("--kernel", o->options.kernel, "Only this kernel")->type_name("NAME");
  command->add_option("--arch", o->targets, "Compile for these [sm_80,sm_89,sm_90,sm_100]")
      ->type_name("sm_N,...");
  command
      ->add_option("--bytes-per-iteration", o->options.payload_bytes,
                   "Codes or values that a thread reads in one iteration [all that its loop loads]")
      ->type_name("N")
      ->check(Count(1));
  command
      ->add_option("--metadata-bytes", o->options.metadata_bytes,
                   "Scales and offsets beside them, a thread's share of memory [0]")
      ->type_name("N")
      ->check(CLI::Range(0.0, 1e9));
  command
      ->add_option("--loaded-bytes", o->options.loaded_bytes,
                   "All bytes that its loads ask for in one iteration, to check the loop by")
      ->type_name("N")
      ->check(Count(1));
  command
      ->add_option("--nvcc-option", o->options.compiler_options,
                   "One more argument for nvcc, such as -Isrc; may be given again")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command->add_flag("--json", o->json, "Print an array with one object a loop");
  command->callback([o, action] { *action = [o] { return RunMeter(*o); }; });
}

}  // namespace kvant::cli
