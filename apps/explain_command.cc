// kvant explain: the arithmetic of a KV cache, as sentences or as JSON.
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>

#include "command.h"
#include "explain_text.h"
#include "failure.h"
#include "kvant/calibration.h"
#include "kvant/explain.h"
#include "kvant/inspect.h"
#include "options.h"
#include "output.h"
#include "report.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant explain --shape 32,32,128 --context 4096 --kv int4:g128 --device a100-40gb\n"
    "  kvant explain -m model.gguf --context 8192 --kv int4 --batch 8\n"
    "  kvant explain --group 0.42,-0.13,0.87,0.05,-0.28,0.61,0.17,-0.02";

constexpr char kDefaultPreset[] = "int4";  // f16 would explain nothing
constexpr char kKiviPrefix[] = "kivi";

struct ExplainOptions {
  std::string shape, model, device = "a100-40gb", group;
  int64_t context_tokens = 4096, batch = 1;
  KvFlags kv;
  int threads = 0;
  bool json = false;
};

struct Request {
  std::optional<GgufSummary> file;
  std::optional<KvExplanation> cache;  // absent when only a group was asked for
  std::optional<KiviResidual> kivi;    // of KIVI's presets
  std::vector<float> values;
  std::vector<GroupExample>
      group;  // integer zero, then the other conventions; empty: not asked for
};

std::vector<float> ParseValues(const std::string& text) {
  std::vector<float> values;
  for (const std::string& part : SplitList(text)) {
    char* end = nullptr;
    const float value = std::strtof(part.c_str(), &end);
    if (part.empty() || *end != '\0' || !std::isfinite(value)) {
      throw UsageError(fmt::format("--group: '{}' is not a finite number", part));
    }
    values.push_back(value);
  }
  return values;
}

Request Resolve(const ExplainOptions& options) {
  if (!options.shape.empty() && !options.model.empty()) {
    throw UsageError("--shape and -m both give a geometry; give one of them");
  }
  const bool has_geometry = !options.shape.empty() || !options.model.empty();
  if (!has_geometry && options.group.empty()) {
    throw UsageError(
        "explain needs --shape LAYERS,KV_HEADS,HEAD_DIM[/LATENT][,Q_HEADS], -m MODEL or --group "
        "VALUES");
  }
  Request request;
  KvFlags kv = options.kv;
  if (kv.preset.empty() && kv.k.empty() && kv.v.empty()) kv.preset = kDefaultPreset;
  const KvSpec spec = kv.Spec();
  if (!options.group.empty()) {
    request.values = ParseValues(options.group);
    const int bits = spec.k.is_float() ? (spec.v.is_float() ? 4 : spec.v.bits) : spec.k.bits;
    for (Offset offset : {Offset::kIntegerZero, Offset::kMin, Offset::kRealZero, Offset::kNone}) {
      request.group.push_back(UnwrapArgument(ExplainGroup(request.values, bits, offset)));
    }
  }
  if (!has_geometry) return request;
  if (!options.model.empty()) request.file = Unwrap(InspectGguf(options.model));
  const KvGeometry geometry =
      request.file ? GeometryOf(options.model, *request.file) : ParseShape(options.shape);
  Check(CheckKvSpec(spec, geometry));
  if (request.file && spec.calibration != nullptr) {
    Check(CheckCalibratedModel(*spec.calibration, request.file->file_hash));
  }
  const Device device = options.device == "cpu" ? Unwrap(MeasureThisMachine(options.threads))
                                                : UnwrapArgument(FindDevice(options.device));
  const std::vector<int64_t> windows =
      request.file ? request.file->layer_windows : std::vector<int64_t>();
  request.cache = UnwrapArgument(
      ExplainKv(geometry, spec, options.context_tokens, options.batch, device, windows));
  if (kv.preset.starts_with(kKiviPrefix)) {
    request.kivi = ResidualOfKivi(geometry, spec, options.context_tokens);
  }
  return request;
}

Json CostJson(const PageCost& cost) {
  return {{"bytes_per_token", Number(cost.bytes_per_token)},
          {"bytes", cost.bytes},
          {"read_bytes", cost.read_bytes},
          {"effective_bits", Number(cost.effective_bits)},
          {"stream_ms", cost.stream_ms},
          {"code_bytes_per_token", Number(cost.code_bytes_per_token)},
          {"metadata_bytes_per_token", Number(cost.metadata_bytes_per_token)},
          {"padding_bytes_per_token", Number(cost.padding_bytes_per_token)}};
}

Json KeptJson(const KeptTokens& kept) {
  return {{"tokens", kept.tokens}, {"bytes", kept.bytes}, {"added_bytes", kept.added_bytes}};
}

void AddCacheJson(const KvExplanation& e, Json* json) {
  const KvGeometry& g = e.geometry;
  const Device& d = e.device;
  const auto known = [](double value) { return value > 0 ? Number(value) : Json(nullptr); };
  (*json)["formats"] = LayerFormatsJson(e.spec, g.layers);
  (*json)["geometry"] = GeometryJson(g);
  (*json)["context_tokens"] = e.context_tokens;
  (*json)["batch"] = e.batch;
  (*json)["page_tokens"] = e.page_tokens;
  (*json)["layer_windows_tokens"] = LayerWindowsJson(e.layer_windows);
  (*json)["f16"] = CostJson(e.f16);
  (*json)["kv"] = CostJson(e.kv);
  (*json)["ratio"] = e.ratio;
  (*json)["window"] = KeptJson(e.window);
  (*json)["sinks"] = KeptJson(e.sinks);
  (*json)["ledger"] = {{"kv_bytes", e.ledger.kv_bytes},
                       {"code_bytes", e.ledger.code_bytes},
                       {"metadata_bytes", e.ledger.metadata_bytes},
                       {"padding_bytes", e.ledger.padding_bytes},
                       {"window_bytes", e.ledger.window_bytes},
                       {"sink_bytes", e.ledger.sink_bytes},
                       {"effective_bits", Number(e.ledger.effective_bits)},
                       {"read_bytes", e.ledger.read_bytes},
                       {"stream_ms", e.ledger_stream_ms}};
  (*json)["bound"] = e.bound;
  (*json)["flops"] = Number(e.flops);
  (*json)["flops_per_byte"] = e.flops_per_byte;
  (*json)["compute_ms"] = known(e.compute_ms);
  (*json)["fits"] = e.fits;
  (*json)["device"] = {{"name", d.name},
                       {"title", d.title},
                       {"source", d.source},
                       {"read_GBps", d.read_bytes_per_s / 1e9},
                       {"memory_bytes", known(d.memory_bytes)},
                       {"matrix_flops_per_s", known(d.matrix_flops_per_s)},
                       {"issue_budget_instructions_per_byte", known(d.IssueBudgetPerByte())}};
}

Json KiviJson(const KiviResidual& r) {
  return {{"k_f16_tokens", r.k_tokens},
          {"v_f16_tokens", r.v_tokens},
          {"k_bits", Number(r.k_bits)},
          {"v_bits", Number(r.v_bits)},
          {"mean_bits", Number(r.mean_bits)}};
}

Json GroupJson(const GroupExample& e) {
  return {{"offset", OffsetWord(e.format.offset)},
          {"bits", e.format.bits},
          {"scale", e.scale},
          {"zero", Number(e.zero)},
          {"codes", e.codes},
          {"bytes_hex", HexBytes(e.bytes)},
          {"decoded", e.decoded},
          {"errors", e.errors},
          {"max_error", e.max_error},
          {"mean_squared_error", e.mean_squared_error}};
}

int RunExplain(const ExplainOptions& options) {
  const Request request = Resolve(options);
  if (!options.json) {
    if (request.cache) Write(CacheText(*request.cache));
    if (request.kivi) Write("\n" + KiviText(*request.kivi, *request.cache));
    if (request.cache && !request.group.empty()) Write("\n");
    if (!request.group.empty()) Write(GroupText(request.values, request.group));
    return kExitDone;
  }
  Json json = Header(options.threads);
  if (request.file) {
    AddModel(options.model, request.file->file_bytes, request.file->file_hash, &json);
  }
  if (request.cache) {
    AddCacheJson(*request.cache, &json);
    json["kivi_residual"] = request.kivi ? KiviJson(*request.kivi) : Json(nullptr);
  }
  if (!request.group.empty()) {
    Json group = GroupJson(request.group[0]);
    for (size_t i = 1; i < request.group.size(); ++i) {
      group["other_conventions"].push_back(GroupJson(request.group[i]));
    }
    json["group"] = std::move(group);
  }
  Write(Dump(json, 2));
  return kExitDone;
}

}  // namespace

void AddExplain(CLI::App& root, Action* action) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App* const command = root.add_subcommand(
      "explain",
      "The arithmetic of a KV cache: bytes a token, time on a device, the limit that holds");
  command->footer(kFooter);
  command->add_option("--shape", options->shape, "Geometry, instead of a model")
      ->type_name("LAYERS,KV_HEADS,HEAD_DIM[/LATENT][,Q_HEADS]");
  command->add_option("-m,--model", options->model, "Geometry of this GGUF file")
      ->type_name("FILE");
  command->add_option("-c,--context", options->context_tokens, "Tokens of a sequence [4096]")
      ->type_name("N");
  command->add_option("--batch", options->batch, "Sequences [1]")->type_name("N");
  options->kv.AddFormat(*command);
  options->kv.AddPolicy(*command);
  std::string devices;
  for (const std::string& name : DeviceNames()) devices += name + " ";
  command->get_option("--kv")->description(
      "Store K and V as PRESET [int4]: f16, int8, int4, int3, int2, trellis4, plain4 and others, "
      "K/V as two formats, or one format for both");
  command
      ->add_option(
          "--device", options->device,
          "What reads the cache [a100-40gb]: " + devices + "or cpu, this machine, measured")
      ->type_name("NAME");
  command->add_option("--group", options->group, "Values to code as one group, step by step")
      ->type_name("X,X,...");
  AddThreads(*command, &options->threads);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options, action] { *action = [options] { return RunExplain(*options); }; });
}

}  // namespace kvant::cli
