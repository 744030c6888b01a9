// kvant roofline: which limit a decode step meets on a device, where another one takes over, and
// what fewer bits give.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "command.h"
#include "failure.h"
#include "kvant/inspect.h"
#include "kvant/regime.h"
#include "options.h"
#include "output.h"
#include "report.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant roofline --device h200 --shape 32,8,128,32 --parameters 8e9 --batch 1,16,64 -c "
    "4096,32768\n"
    "  kvant roofline --device a100-80gb --shape 32,32,128 --kv f16,int4:g128 --kernel all\n"
    "  kvant roofline --check\n"
    "\n"
    "A bound: no kernel with these instruction counts can be faster. How fast one is, a GPU must "
    "say.";

constexpr char kAllKernels[] = "all", kFastestKernel[] = "fastest";

struct RooflineFlags {
  std::string device, shape, model, kv = "f16,int8:g128,int4:g128,int2:g128";
  std::string kernel = kFastestKernel, batches = "1,16,64", contexts = "4096,32768";
  double parameters = 0, weight_bits = 16;
  bool check = false, json = false;
};

// One cache read by one kernel, at each batch and context.
struct Row {
  std::string kv;
  KernelCost kernel;
  KvExplanation cache;
  StepTime time;
  double speed_up = 0;  // of the whole step against f16's fastest kernel
};

struct Request {
  Device device;
  KvGeometry geometry;
  WeightCost weights;
  std::vector<int64_t> layer_windows;
  std::vector<std::string> kv;
  std::vector<int64_t> batches, contexts;
};

Request Resolve(const RooflineFlags& flags) {
  if (flags.device.empty()) throw UsageError("roofline needs --device, or --check");
  if (flags.shape.empty() == flags.model.empty()) {
    throw UsageError(
        "roofline needs either --shape LAYERS,KV_HEADS,HEAD_DIM[,Q_HEADS] or -m MODEL");
  }
  Request request;
  request.device = UnwrapArgument(FindDevice(flags.device));
  request.weights.parameters = flags.parameters;
  request.weights.bytes = flags.parameters * flags.weight_bits / 8;
  if (flags.model.empty()) {
    request.geometry = ParseShape(flags.shape);
  } else {
    const GgufSummary file = Unwrap(InspectGguf(flags.model));
    request.geometry = GeometryOf(flags.model, file);
    request.layer_windows = file.layer_windows;
    request.weights.bytes = static_cast<double>(file.file_bytes);
  }
  if (request.geometry.is_latent()) {
    throw UsageError("no kernel was counted that reads latents; kvant explain has their bytes");
  }
  request.kv = SplitList(flags.kv);
  request.batches = ParseCounts("--batch", flags.batches);
  request.contexts = ParseCounts("--context", flags.contexts);
  return request;
}

bool IsCodebook(const Format& f) {
  return f.bits == 4 && (f.levels == Levels::kLloydMax || f.levels == Levels::kNested);
}

std::vector<KernelCost> KernelsOf(const Device& device, const KvSpec& spec, const std::string& kv) {
  std::vector<KernelCost> kernels;
  std::string widths;
  for (const KernelCost& kernel : KernelCosts(device.target)) {
    const int v_bits = kernel.v_bits > 0 ? kernel.v_bits : kernel.bits;
    const bool reads_floats = kernel.format == "fp8", reads_levels = kernel.format == "tq4";
    if (kernel.bits == spec.k.bits && v_bits == spec.v.bits && reads_floats == spec.k.is_float8() &&
        reads_floats == spec.v.is_float8() &&
        reads_levels == (IsCodebook(spec.k) && IsCodebook(spec.v))) {
      kernels.push_back(kernel);
    }
    const std::string width = v_bits == kernel.bits ? fmt::format(" {}", kernel.bits)
                                                    : fmt::format(" {}/{}", kernel.bits, v_bits);
    if (widths.find(width) == std::string::npos) widths += width;
  }
  if (kernels.empty()) {
    throw UsageError(fmt::format(
        "no kernel was counted for both sides of '{}'; widths that were:{}", kv, widths));
  }
  return kernels;
}

// All kernels of a cache at one batch and context.
std::vector<Row> RowsOf(const Request& r, const std::string& kv, int64_t batch, int64_t context) {
  const KvSpec spec = UnwrapArgument(ParseKvPreset(kv));
  const std::vector<KernelCost> kernels = KernelsOf(r.device, spec, kv);
  const KvExplanation cache =
      UnwrapArgument(ExplainKv(r.geometry, spec, context, batch, r.device, r.layer_windows));
  std::vector<Row> rows;
  for (const KernelCost& kernel : kernels) {
    const StepTime time = UnwrapArgument(TimeOfStep(cache, kernel, r.weights));
    rows.push_back({kv, kernel, cache, time});
  }
  return rows;
}

const Row& Fastest(const std::vector<Row>& rows) {
  return *std::min_element(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.time.total_ms < b.time.total_ms;
  });
}

std::vector<Row> SelectRows(const Request& r, const std::string& wanted, int64_t batch,
                            int64_t context) {
  const double f16_ms = Fastest(RowsOf(r, "f16", batch, context)).time.total_ms;
  std::vector<Row> rows;
  for (const std::string& kv : r.kv) {
    const std::vector<Row> all = RowsOf(r, kv, batch, context);
    const Row& fastest = Fastest(all);
    for (const Row& row : all) {
      const bool is_fastest = &row == &fastest;
      if (wanted == kFastestKernel ? !is_fastest
                                   : wanted != kAllKernels && wanted != row.kernel.name) {
        continue;
      }
      rows.push_back(row);
      rows.back().speed_up = f16_ms / row.time.total_ms;
    }
  }
  if (rows.empty()) {
    throw UsageError(
        fmt::format("no kernel '{}'; possible: fastest all core tensor naive", wanted));
  }
  return rows;
}

std::vector<Row> AllRows(const Request& r, const std::string& wanted) {
  std::vector<Row> rows;
  for (int64_t context : r.contexts) {
    for (int64_t batch : r.batches) {
      const std::vector<Row> more = SelectRows(r, wanted, batch, context);
      rows.insert(rows.end(), more.begin(), more.end());
    }
  }
  return rows;
}

std::string BoundText(const Row& row) {
  std::string text(BoundName(row.time.bound));
  if (row.time.bound == Bound::kKvInstructions) text += fmt::format(" ({})", row.time.pipe);
  return row.cache.fits ? text : text + ", does not fit";
}

std::string DeviceText(const Device& d) {
  const PipeLanes lanes = LanesOf(d.target);
  return fmt::format(
      "Device   {}, sm_{}: {} multiprocessors at {:.3f} GHz, reads {}\n"
      "         ({}{})\n"
      "In the time of one byte it issues {:.2f} instructions, {:.2f} of them on the ALU and {:.2f} "
      "on "
      "the XU,\nand does {:.0f} matrix operations.\n",
      d.title, d.target, d.multiprocessors, d.clock_hz / 1e9, HumanRate(d.read_bytes_per_s),
      d.source, d.unverified.empty() ? "" : "; not verified: " + d.unverified,
      d.IssueBudgetPerByte(), d.BudgetPerByte(lanes.alu), d.BudgetPerByte(lanes.xu),
      d.matrix_flops_per_s / d.read_bytes_per_s);
}

// Reading KV against unpacking it: neither batch nor context changes this.
std::string KernelsText(const Request& r) {
  Table table({"kv", "kernel", "bytes a token", "issued a byte", "busiest", "of the reading time",
               "limit", "counted with"});
  for (const std::string& kv : r.kv) {
    for (const Row& row : RowsOf(r, kv, 1, r.contexts.front())) {
      const PipeLoad busiest = BusiestPipe(r.device, row.kernel, r.geometry.group_ratio());
      table.Add({kv, row.kernel.name, Grouped(row.cache.kv.bytes_per_token),
                 fmt::format("{:.2f}", row.kernel.issued), busiest.pipe,
                 fmt::format("{:.0f} %", 100 * row.time.kv_compute_ms / row.time.kv_read_ms),
                 row.time.kv_compute_ms > row.time.kv_read_ms ? "instructions" : "memory",
                 row.kernel.source});
    }
  }
  return fmt::format("Kernels, {} a KV head\n", Plural(r.geometry.group_ratio(), "query head")) +
         table.Text();
}

std::string StepsText(const std::vector<Row>& rows) {
  Table table({"context", "batch", "kv", "kernel", "weights", "KV", "step", "x f16", "the limit",
               "KV = weights at"});
  for (const Row& row : rows) {
    const StepTime& t = row.time;
    table.Add(
        {Grouped(row.cache.context_tokens), Grouped(row.cache.batch), row.kv, row.kernel.name,
         HumanTime(t.weight_ms), HumanTime(t.kv_ms), HumanTime(t.total_ms),
         fmt::format("{:.2f}", row.speed_up), BoundText(row),
         t.equal_context_tokens > 0
             ? fmt::format("{} tokens or {:.1f} sequences",
                           Grouped(static_cast<int64_t>(t.equal_context_tokens)), t.equal_batch)
             : ""});
  }
  std::string text = "One decode step\n" + table.Text();
  if (rows[0].time.weight_ridge_batch > 0) {
    text += fmt::format(
        "  From {:.0f} sequences on, products with weights take longer than reading them.\n",
        rows[0].time.weight_ridge_batch);
  }
  return text;
}

Json StepJson(const Row& row) {
  const StepTime& t = row.time;
  const auto known = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  return {{"kv", row.kv},
          {"kernel", row.kernel.name},
          {"kernel_source", row.kernel.source},
          {"context_tokens", row.cache.context_tokens},
          {"batch", row.cache.batch},
          {"bytes_per_token", Number(row.cache.kv.bytes_per_token)},
          {"weight_ms", t.weight_ms},
          {"kv_read_ms", t.kv_read_ms},
          {"kv_compute_ms", t.kv_compute_ms},
          {"kv_ms", t.kv_ms},
          {"total_ms", t.total_ms},
          {"speed_up", row.speed_up},
          {"bound", BoundName(t.bound)},
          {"busiest_pipe", t.pipe},
          {"fits", row.cache.fits},
          {"equal_context_tokens", known(t.equal_context_tokens)},
          {"equal_batch", known(t.equal_batch)},
          {"weight_ridge_batch", known(t.weight_ridge_batch)}};
}

Json DeviceJson(const Device& d) {
  const PipeLanes lanes = LanesOf(d.target);
  return {{"name", d.name},
          {"title", d.title},
          {"source", d.source},
          {"unverified", d.unverified},
          {"arch", fmt::format("sm_{}", d.target)},
          {"multiprocessors", d.multiprocessors},
          {"clock_GHz", d.clock_hz / 1e9},
          {"read_GBps", d.read_bytes_per_s / 1e9},
          {"issue_budget_per_byte", d.IssueBudgetPerByte()},
          {"alu_budget_per_byte", d.BudgetPerByte(lanes.alu)},
          {"xu_budget_per_byte", d.BudgetPerByte(lanes.xu)},
          {"matrix_flops_per_byte", d.matrix_flops_per_s / d.read_bytes_per_s}};
}

int RunCheck(bool json) {
  const std::vector<MeasuredStep> steps = CheckAgainstMeasuredSteps();
  Json list = Json::array();
  Table table({"cache", "depth", "measured ms", "predicted ms", "off"});
  for (const MeasuredStep& s : steps) {
    list.push_back({{"cache", s.cache},
                    {"context_tokens", s.context_tokens},
                    {"measured_ms", s.measured_ms},
                    {"predicted_ms", s.predicted_ms}});
    table.Add({s.cache, Grouped(s.context_tokens), fmt::format("{:.2f}", s.measured_ms),
               fmt::format("{:.2f}", s.predicted_ms),
               fmt::format("{:+.0f} %", 100 * (s.predicted_ms / s.measured_ms - 1))});
  }
  if (json) {
    Write(Dump(list, 2));
  } else {
    Write("Decode steps of SmolLM2-135M on the Zen 4 machine of docs/performance.md\n" +
          table.Text());
  }
  return kExitDone;
}

int RunRoofline(const RooflineFlags& flags) {
  if (flags.check) return RunCheck(flags.json);
  const Request request = Resolve(flags);
  const std::vector<Row> rows = AllRows(request, flags.kernel);
  if (flags.json) {
    Json json = {{"device", DeviceJson(request.device)},
                 {"group_ratio", request.geometry.group_ratio()},
                 {"steps", Json::array()}};
    for (const Row& row : rows) json["steps"].push_back(StepJson(row));
    Write(Dump(json, 2));
    return kExitDone;
  }
  Write(DeviceText(request.device) + "\n" + KernelsText(request) + "\n" + StepsText(rows));
  return kExitDone;
}

}  // namespace

void AddRoofline(CLI::App& root, Action* action) {
  const auto o = std::make_shared<RooflineFlags>();
  CLI::App* const command = root.add_subcommand(
      "roofline", "Which limit a decode step meets on a GPU, and what fewer bits give");
  command->footer(kFooter);
  std::string devices;
  for (const std::string& name : DeviceNames()) devices += " " + name;
  command->add_option("--device", o->device, "One of" + devices)->type_name("NAME");
  command->add_option("--shape", o->shape, "Geometry, instead of a model")
      ->type_name("LAYERS,KV_HEADS,HEAD_DIM[,Q_HEADS]");
  command->add_option("-m,--model", o->model, "Geometry and weight bytes of this GGUF file")
      ->type_name("FILE");
  command->add_option("--kv", o->kv, "Caches [f16,int8:g128,int4:g128,int2:g128]")
      ->type_name("PRESET,...");
  command
      ->add_option("--kernel", o->kernel,
                   "Kernels that read them: fastest, all, or a name [fastest]")
      ->type_name("NAME");
  command->add_option("--batch", o->batches, "Sequences [1,16,64]")->type_name("N,...");
  command->add_option("-c,--context", o->contexts, "Tokens of a sequence [4096,32768]")
      ->type_name("N,...");
  command->add_option("--parameters", o->parameters, "Weights of the model [0: attention alone]")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1e15));
  command->add_option("--weight-bits", o->weight_bits, "Bits of each of them [16]")
      ->type_name("X")
      ->check(CLI::Range(0.1, 64.0));
  command->add_flag("--check", o->check,
                    "Print what this model says of measured steps of a CPU beside them");
  command->add_flag("--json", o->json, "Print JSON");
  command->callback([o, action] { *action = [o] { return RunRoofline(*o); }; });
}

}  // namespace kvant::cli
