// kvant bench: speed of prompts and answers by cache format and depth, in llama-bench's terms.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <memory>
#include <optional>

#include "bench_attention_command.h"
#include "command.h"
#include "failure.h"
#include "kvant/explain.h"
#include "kvant/sampler.h"
#include "kvant/session.h"
#include "model_options.h"
#include "rows.h"
#include "statistics.h"

namespace kvant::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant bench -m model.gguf --kv f16,int8,int4 -p 512 -n 32 -d 0,1024,8192\n"
    "  kvant bench -m model.gguf -ctk f16,q4_0 -ctv f16,q4_0 -o jsonl\n"
    "  kvant bench attention --shape 30,3,64,9 --formats f16,int8,int4 --depth 1024,8192\n"
    "\n"
    "All formats take turns within a repetition, so that a slow moment of the machine hits all of "
    "them.";

struct BenchOptions {
  ModelFlags model;
  KvFlags kv;
  CompatibilityFlags compatibility;
  OutputFlags output;
  std::string prompts = "512", answers = "128", depths = "0", parallel = "1";
  int repetitions = 5;
  bool model_given = false;
};

// One thing to time at a depth: `tokens` of prompt, or of answer in each of `parallel` sequences.
struct Test {
  int64_t prompt_tokens = 0, answer_tokens = 0;
  int64_t parallel = 1;

  std::string Name(int64_t depth) const {
    std::string name =
        prompt_tokens > 0 ? fmt::format("pp{}", prompt_tokens) : fmt::format("tg{}", answer_tokens);
    if (parallel > 1) name += fmt::format(" x{}", parallel);
    return depth > 0 ? name + fmt::format(" @ d{}", depth) : name;
  }
  int64_t tokens() const { return prompt_tokens + answer_tokens * parallel; }
};

// One spec: a timeline that grows from depth to depth, and what its forks measured.
struct Contender {
  KvSpec spec;
  Session session;
  std::vector<int64_t> samples_ns;
  double kv_read_bytes = 0;  // by a step of the last repetition, all sequences
};

class Bench {
 public:
  Bench(const BenchOptions& options, const Model& model, double read_bytes_per_s)
      : options_(options),
        model_(model),
        read_bytes_per_s_(read_bytes_per_s),
        rows_(options.output.Format(),
              {"type_k", "type_v", "test", "t/s", "KV B/token", "KV GB/s", "roofline"}),
        header_(Header(options.model.threads)) {
    AddModel(model.path(), model.file_bytes(), model.file_hash(), &header_);
  }

  void Run(const std::vector<KvSpec>& specs, std::vector<int64_t> depths,
           const std::vector<Test>& tests) {
    std::sort(depths.begin(), depths.end());
    int64_t longest = 0;
    for (const Test& test : tests)
      longest = std::max(longest, test.prompt_tokens + test.answer_tokens);
    SessionOptions session_options = options_.model.Session({}, options_.kv.BudgetBytes());
    session_options.context_tokens = depths.back() + longest;
    std::vector<Contender> contenders;
    for (const KvSpec& spec : specs) {
      session_options.kv = spec;
      contenders.push_back({spec, Unwrap(Session::Create(model_, session_options)), {}, 0});
    }
    const double parts =
        static_cast<double>(depths.size() * (specs.size() + tests.size() * options_.repetitions));
    for (int64_t depth : depths) {
      for (Contender& contender : contenders) {
        ExtendTo(depth, contender);
        bar_.Update(++done_, parts);
      }
      for (const Test& test : tests) {
        for (Contender& contender : contenders) {
          contender.samples_ns.clear();
          TimeOnce(test, contender);  // warms up, not counted
        }
        for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
          for (Contender& contender : contenders)
            contender.samples_ns.push_back(TimeOnce(test, contender));
          bar_.Update(++done_, parts);
        }
        bar_.Clear();
        for (const Contender& contender : contenders) AddRow(test, depth, contender);
      }
    }
    rows_.Finish();
  }

 private:
  std::vector<int32_t> RandomTokens(int64_t count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random_.Next() % static_cast<uint64_t>(model_.vocab_size()));
    }
    return tokens;
  }

  void ExtendTo(int64_t depth, Contender& contender) {
    random_ = RandomStream(static_cast<uint64_t>(depth));  // the same tokens for every format
    const int64_t missing = depth - contender.session.length();
    if (missing > 0) Check(contender.session.Prefill(RandomTokens(missing)));
  }

  // Nanoseconds of one repetition on forks, which are dropped afterwards.
  int64_t TimeOnce(const Test& test, Contender& contender) {
    random_ = RandomStream(1);
    std::vector<Session> forks;
    std::vector<Session*> sessions;
    for (int64_t i = 0; i < test.parallel; ++i) forks.push_back(Unwrap(contender.session.Fork()));
    for (Session& fork : forks) sessions.push_back(&fork);
    const double read_before = KvRead(forks);
    const auto begin =
        test.prompt_tokens > 0 ? TimePrompt(test, forks[0]) : TimeAnswer(test, sessions);
    const int64_t elapsed_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
    contender.kv_read_bytes = (read_before + KvRead(forks)) / 2;
    return elapsed_ns;
  }

  // Both return when they began; the caller's clock ends the measurement.
  Clock::time_point TimePrompt(const Test& test, Session& session) {
    const std::vector<int32_t> tokens = RandomTokens(test.prompt_tokens);
    const auto begin = Clock::now();
    Check(session.Prefill(tokens));
    (void)Unwrap(session.Logits());
    return begin;
  }

  Clock::time_point TimeAnswer(const Test& test, const std::vector<Session*>& sessions) {
    const std::vector<int32_t> tokens = RandomTokens(test.answer_tokens * test.parallel);
    const auto begin = Clock::now();
    for (int64_t step = 0; step < test.answer_tokens; ++step) {
      const std::span<const int32_t> now(&tokens[static_cast<size_t>(step * test.parallel)],
                                         static_cast<size_t>(test.parallel));
      Check(sessions.size() == 1 ? sessions[0]->Decode(now[0])
                                 : Session::DecodeBatch(sessions, now));
      for (Session* session : sessions) (void)Unwrap(session->Logits());
    }
    return begin;
  }

  static double KvRead(const std::vector<Session>& sessions) {
    double bytes = 0;
    for (const Session& session : sessions)
      bytes += static_cast<double>(session.kv_bytes_read_per_token());
    return bytes;
  }

  std::string ModelType() const {
    std::string type = fmt::format("{} {:.0f}M", model_.architecture(),
                                   static_cast<double>(model_.parameters()) / 1e6);
    const auto& types = model_.weight_types();
    const auto most =
        std::max_element(types.begin(), types.end(),
                         [](const auto& a, const auto& b) { return a.file_bytes < b.file_bytes; });
    return most == types.end() ? type : type + " " + most->type;
  }

  void AddRow(const Test& test, int64_t depth, const Contender& contender) {
    const std::vector<double> samples_ns(contender.samples_ns.begin(), contender.samples_ns.end());
    std::vector<double> tokens_per_s;
    for (double ns : samples_ns)
      tokens_per_s.push_back(1e9 * static_cast<double>(test.tokens()) / ns);
    const KvGeometry g = model_.geometry();
    const double kv_bytes = PageBytesPerToken(g, contender.spec);
    const double median_ns = Median(samples_ns);
    Json row = header_;
    row.update(Json{
        {"build_commit", header_["commit"]},
        {"cpu_info", header_["cpu"]},
        {"model_filename", model_.path()},
        {"model_type", ModelType()},
        {"model_size", model_.file_bytes()},
        {"model_n_params", model_.parameters()},
        {"n_batch", options_.model.chunk_tokens},
        {"n_threads", options_.model.threads},
        {"type_k", FormatSpec(contender.spec.k)},
        {"type_v", FormatSpec(contender.spec.v)},
        {"formats", LayerFormatsJson(contender.spec, g.layers)},
        {"flash_attn", true},
        {"test", test.Name(depth)},
        {"n_prompt", test.prompt_tokens},
        {"n_gen", test.answer_tokens},
        {"n_depth", depth},
        {"n_parallel", test.parallel},
        {"test_time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
        {"avg_ns", std::llround(Mean(samples_ns))},
        {"stddev_ns", std::llround(StandardDeviation(samples_ns))},
        {"median_ns", std::llround(median_ns)},
        {"avg_ts", Mean(tokens_per_s)},
        {"stddev_ts", StandardDeviation(tokens_per_s)},
        {"samples_ns", contender.samples_ns},
        {"samples_ts", tokens_per_s},
        {"kv_bytes_per_token", Number(kv_bytes)},
        {"kv_effective_bits", Number(8 * kv_bytes / (2.0 * g.layers * g.kv_heads * g.head_dim))},
        {"read_bw_GBps", read_bytes_per_s_ / 1e9}});
    // What a step must read; a prompt's chunks are bound by arithmetic, so they have no such
    // figure.
    std::string rate_cell, roofline_cell;
    row["kv_read_GBps"] = row["roofline_pct"] = nullptr;
    if (test.answer_tokens > 0) {
      const double step_s = median_ns / 1e9 / static_cast<double>(test.answer_tokens);
      const double bytes =
          contender.kv_read_bytes + static_cast<double>(model_.weight_bytes_read_per_token());
      row["kv_read_GBps"] = contender.kv_read_bytes / step_s / 1e9;
      row["roofline_pct"] = 100 * bytes / step_s / read_bytes_per_s_;
      rate_cell = fmt::format("{:.2f}", row["kv_read_GBps"].get<double>());
      roofline_cell = fmt::format("{:.0f} %", row["roofline_pct"].get<double>());
    }
    rows_.Add(row,
              {FormatSpec(contender.spec.k), FormatSpec(contender.spec.v), test.Name(depth),
               fmt::format("{:.2f} ± {:.2f}", Mean(tokens_per_s), StandardDeviation(tokens_per_s)),
               Grouped(kv_bytes), rate_cell, roofline_cell});
  }

  const BenchOptions& options_;
  const Model& model_;
  double read_bytes_per_s_;
  RowPrinter rows_;
  Json header_;
  RandomStream random_{0};
  Progress bar_{"bench"};
  double done_ = 0;
};

std::vector<Test> MakeTests(const BenchOptions& o) {
  std::vector<Test> tests;
  for (int64_t tokens : ParseCounts("--n-prompt", o.prompts)) {
    if (tokens > 0) tests.push_back({tokens, 0, 1});
  }
  for (int64_t tokens : ParseCounts("--n-gen", o.answers)) {
    for (int64_t parallel : ParseCounts("--parallel", o.parallel)) {
      if (parallel == 0)
        throw UsageError("--parallel 0 is not possible: at least 1 sequence is needed");
      if (parallel > o.model.chunk_tokens) {
        throw UsageError(
            fmt::format("--parallel {} exceeds --batch-size {}", parallel, o.model.chunk_tokens));
      }
      if (tokens > 0) tests.push_back({0, tokens, parallel});
    }
  }
  if (tests.empty()) throw UsageError("nothing to measure: --n-prompt and --n-gen are both 0");
  return tests;
}

int RunBench(const BenchOptions& o) {
  o.compatibility.CheckPossible();
  KvFlags kv = o.kv;
  if (kv.preset.empty()) {
    if (kv.k.empty()) kv.k = "f16";
    if (kv.v.empty()) kv.v = "f16";
  }
  const std::vector<KvSpec> specs = kv.Specs();
  const std::vector<Test> tests = MakeTests(o);
  const std::vector<int64_t> depths = ParseCounts("--n-depth", o.depths);
  (void)o.output.Format();
  const GgufSummary file = o.model.Inspect();
  for (const KvSpec& spec : specs) o.model.CheckFits(file, spec);
  const ReadBandwidth bandwidth = Unwrap(MeasureReadBandwidth(o.model.threads));
  const Model model = o.model.Load();
  Bench(o, model, bandwidth.best_bytes_per_s).Run(specs, depths, tests);
  return kExitDone;
}

}  // namespace

void AddBench(CLI::App& root, Action* action) {
  const auto o = std::make_shared<BenchOptions>();
  CLI::App* const command = root.add_subcommand("bench", "Speed by cache format and depth");
  command->footer(kFooter);
  o->model.Add(*command);
  command->get_option("-m")->required(false);  // `bench attention` has no model
  command->add_option("-p,--n-prompt", o->prompts, "Tokens of a prompt, a list, 0 for none [512]")
      ->type_name("N,...");
  command->add_option("-n,--n-gen", o->answers, "Tokens of an answer, a list, 0 for none [128]")
      ->type_name("N,...");
  command->add_option("-d,--n-depth", o->depths, "Tokens in the cache before, a list [0]")
      ->type_name("N,...");
  command
      ->add_option("--parallel", o->parallel,
                   "Sequences that answer at once, a list (also -npl) [1]")
      ->type_name("N,...");
  command->add_option("-r,--repetitions", o->repetitions, "Repetitions [5]")
      ->type_name("N")
      ->check(Count(1, 10000));
  o->kv.AddFormat(*command);
  o->kv.AddPolicy(*command);
  o->kv.AddBudget(*command);
  o->compatibility.Add(*command);
  o->output.Add(*command);
  AddBenchAttention(*command, action);
  command->callback([o, command, action] {
    if (!command->get_subcommands().empty()) return;
    if (o->model.path.empty()) throw UsageError("bench needs -m FILE, or `bench attention`");
    *action = [o] { return RunBench(*o); };
  });
}

}  // namespace kvant::cli
