// kvant bench: speed of prompts and answers by cache format and depth, in llama-bench's terms.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "bench_attention_command.h"
#include "bench_mixed_command.h"
#include "bench_rows.h"
#include "command.h"
#include "failure.h"
#include "kvant/machine_load.h"
#include "kvant/roofline.h"
#include "kvant/sampler.h"
#include "kvant/session.h"
#include "model_options.h"

namespace kvant::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant bench -m model.gguf --kv f16,int8,int4 -p 512 -n 32 -d 0,1024,8192\n"
    "  kvant bench -m model.gguf -ctk f16,q4_0 -ctv f16,q4_0 -o jsonl\n"
    "  kvant bench -m model.gguf --kv int4 -p 0 -n 32 -d 2048 -npl 1,4,16 --shared-prefix 1536\n"
    "  kvant bench attention --shape 30,3,64,9 --formats f16,int8,int4 --depth 1024,8192\n"
    "  kvant bench mixed --depth 8192\n"
    "\n"
    "All formats take turns within a repetition, so that a slow moment of the machine hits all of "
    "them.";

struct BenchOptions {
  ModelFlags model;
  KvFlags kv;
  CompatibilityFlags compatibility;
  OutputFlags output;
  std::string prompts = "512", answers = "128", depths = "0", parallel = "1";
  int64_t shared_tokens = -1;  // of the depth, by the sequences of a batch; -1: all
  int repetitions = 5;
  bool paced = false;
  bool model_given = false;
};

// One spec: a timeline that grows from depth to depth, and what its forks measured.
struct Contender {
  KvSpec spec;
  Session session;
  std::vector<int64_t> samples_ns;
  std::vector<double> steps_ns;   // of all repetitions; empty: the test is no answer
  double kv_read_bytes = 0;       // by a step of the last repetition, all sequences
  std::vector<Session> branches;  // beyond the shared prefix, one a sequence of the largest batch

  void Clear() {
    samples_ns.clear();
    steps_ns.clear();
  }
};

class Bench {
 public:
  Bench(const BenchOptions& options, const Model& model, double read_bytes_per_s)
      : options_(options),
        model_(model),
        rows_(options.output.Format(), options.model, model, read_bytes_per_s) {}

  void Run(const std::vector<KvSpec>& specs, std::vector<int64_t> depths,
           const std::vector<BenchTest>& tests) {
    std::sort(depths.begin(), depths.end());
    int64_t longest = 0;
    for (const BenchTest& test : tests)
      longest = std::max(longest, test.prompt_tokens + test.answer_tokens);
    SessionOptions session_options = options_.model.Session({}, options_.kv.BudgetBytes({}));
    session_options.context_tokens = depths.back() + longest;
    std::vector<Contender> contenders;
    for (const KvSpec& spec : specs) {
      session_options.kv = spec;
      contenders.push_back({spec, Unwrap(Session::Create(model_, session_options)), {}, {}, 0, {}});
    }
    const double parts =
        static_cast<double>(depths.size() * (specs.size() + tests.size() * options_.repetitions));
    for (int64_t depth : depths) {
      for (Contender& contender : contenders) {
        ExtendTo(std::min(depth, SharedTokens(depth)), contender);
        if (depth > SharedTokens(depth)) BranchTo(depth, tests, contender);
        bar_.Update(++done_, parts);
      }
      for (const BenchTest& test : tests) {
        for (Contender& contender : contenders) contender.Clear();
        load_.Restart();
        for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
          for (Contender& contender : contenders) Repeat(test, depth, repetition, contender);
          bar_.Update(++done_, parts);
        }
        bar_.Clear();
        if (options_.paced) continue;
        for (const Contender& contender : contenders) AddRow(test, depth, contender);
      }
    }
    rows_.Finish(options_.paced);
  }

 private:
  std::vector<int32_t> RandomTokens(int64_t count) {
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random_.Next() % static_cast<uint64_t>(model_.vocab_size()));
    }
    return tokens;
  }

  // Another program that takes turns with this one says when, by a line on standard input.
  void AwaitTurn() {
    if (!options_.paced) return;
    for (int c = std::getchar(); c != '\n'; c = std::getchar()) {
      if (c == EOF)
        throw Failure(kExitFailed, "--paced: standard input ended before the last turn");
    }
    load_.Restart();
  }

  void ExtendTo(int64_t depth, Contender& contender) {
    random_ = RandomStream(static_cast<uint64_t>(depth));  // the same tokens for every format
    const int64_t filled = contender.session.length();
    if (depth <= filled) return;
    const std::vector<int32_t> tokens = RandomTokens(depth - filled);
    AwaitTurn();
    const auto begin = Clock::now();
    Check(contender.session.Prefill(tokens));
    contender.Clear();
    contender.samples_ns = {Nanoseconds(begin)};
    if (options_.paced) AddRow(BenchTest{depth - filled, 0, 1}, filled, contender);
  }

  int64_t SharedTokens(int64_t depth) const {
    return options_.shared_tokens < 0 ? depth : std::min(depth, options_.shared_tokens);
  }

  // Gives each sequence of a batch tokens of its own up to the depth.
  void BranchTo(int64_t depth, const std::vector<BenchTest>& tests, Contender& contender) {
    std::vector<Session>& branches = contender.branches;
    for (const BenchTest& test : tests) {
      while (static_cast<int64_t>(branches.size()) < test.parallel)
        branches.push_back(Unwrap(contender.session.Fork()));
    }
    for (Session& branch : branches) Check(branch.Prefill(RandomTokens(depth - branch.length())));
  }

  void Repeat(const BenchTest& test, int64_t depth, int repetition, Contender& contender) {
    AwaitTurn();
    if (repetition == 0) {  // warms up, not counted
      TimeOnce(test, contender);
      contender.Clear();
    }
    if (options_.paced) contender.Clear();
    contender.samples_ns.push_back(TimeOnce(test, contender));
    if (options_.paced) AddRow(test, depth, contender);
  }

  static int64_t Nanoseconds(Clock::time_point since) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - since).count();
  }

  // Nanoseconds of one repetition on forks, which are dropped afterwards.
  int64_t TimeOnce(const BenchTest& test, Contender& contender) {
    random_ = RandomStream(1);
    std::vector<Session> forks;
    std::vector<Session*> sessions;
    for (size_t i = 0; i < static_cast<size_t>(test.parallel); ++i) {
      Session& parent = contender.branches.empty() ? contender.session : contender.branches[i];
      forks.push_back(Unwrap(parent.Fork()));
    }
    for (Session& fork : forks) sessions.push_back(&fork);
    const int64_t read_before = contender.session.kv_bytes_read();
    const auto begin = test.prompt_tokens > 0 ? TimePrompt(test, forks[0])
                                              : TimeAnswer(test, sessions, &contender.steps_ns);
    const int64_t elapsed_ns = Nanoseconds(begin);
    contender.kv_read_bytes = static_cast<double>(contender.session.kv_bytes_read() - read_before) /
                              static_cast<double>(std::max<int64_t>(test.answer_tokens, 1));
    return elapsed_ns;
  }

  // Both return when they began; the caller's clock ends the measurement.
  Clock::time_point TimePrompt(const BenchTest& test, Session& session) {
    const std::vector<int32_t> tokens = RandomTokens(test.prompt_tokens);
    const auto begin = Clock::now();
    Check(session.Prefill(tokens));
    (void)Unwrap(session.Logits());
    return begin;
  }

  // Adds the time of each step to steps_ns.
  Clock::time_point TimeAnswer(const BenchTest& test, const std::vector<Session*>& sessions,
                               std::vector<double>* steps_ns) {
    const std::vector<int32_t> tokens = RandomTokens(test.answer_tokens * test.parallel);
    steps_ns->reserve(steps_ns->size() + static_cast<size_t>(test.answer_tokens));
    const auto begin = Clock::now();
    for (int64_t step = 0; step < test.answer_tokens; ++step) {
      const auto step_begin = Clock::now();
      const std::span<const int32_t> now(&tokens[static_cast<size_t>(step * test.parallel)],
                                         static_cast<size_t>(test.parallel));
      Check(sessions.size() == 1 ? sessions[0]->Decode(now[0])
                                 : Session::DecodeBatch(sessions, now));
      for (Session* session : sessions) (void)Unwrap(session->Logits());
      steps_ns->push_back(static_cast<double>(Nanoseconds(step_begin)));
    }
    return begin;
  }

  void AddRow(const BenchTest& test, int64_t depth, const Contender& contender) {
    rows_.Add(test, depth, SharedTokens(depth), contender.spec, contender.samples_ns,
              contender.steps_ns, contender.kv_read_bytes, load_.Read());
  }

  const BenchOptions& options_;
  const Model& model_;
  BenchRows rows_;
  RandomStream random_{0};
  LoadMeter load_;
  Progress bar_{"bench"};
  double done_ = 0;
};

std::vector<BenchTest> MakeTests(const BenchOptions& o) {
  std::vector<BenchTest> tests;
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
  const std::vector<BenchTest> tests = MakeTests(o);
  const std::vector<int64_t> depths = ParseCounts("--n-depth", o.depths);
  if (o.paced && o.shared_tokens >= 0) {
    throw UsageError("--paced does not go with --shared-prefix: its sequences fill without a turn");
  }
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
  command->get_option("-m")->required(false);  // the commands inside have no model
  command->add_option("-p,--n-prompt", o->prompts, "Tokens of a prompt, a list, 0 for none [512]")
      ->type_name("N,...");
  command
      ->add_option("-n,--n-gen", o->answers,
                   "Tokens of an answer, a list, 0 for none (also -ntg) [128]")
      ->type_name("N,...");
  command
      ->add_option("-d,--n-depth", o->depths,
                   "Tokens in the cache of a sequence before, a list (also -npp) [0]")
      ->type_name("N,...");
  command
      ->add_option("--parallel", o->parallel,
                   "Sequences that answer at once, a list (also -npl) [1]")
      ->type_name("N,...");
  command
      ->add_option("--shared-prefix", o->shared_tokens,
                   "Tokens that the sequences of a batch share of the depth [all]")
      ->type_name("N")
      ->check(Count(0));
  command->add_option("-r,--repetitions", o->repetitions, "Repetitions [5]")
      ->type_name("N")
      ->check(Count(1, 10000));
  command->add_flag("--paced", o->paced,
                    "Fill and repeat only when a line arrives on standard input; every time is a "
                    "row of its own");
  o->kv.AddFormat(*command);
  o->kv.AddPolicy(*command);
  o->kv.AddBudget(*command);
  o->compatibility.Add(*command);
  o->output.Add(*command);
  AddBenchAttention(*command, action);
  AddBenchMixed(*command, action);
  command->callback([o, command, action] {
    if (!command->get_subcommands().empty()) return;
    if (o->model.path.empty())
      throw UsageError("bench needs -m FILE, or `bench attention` or `bench mixed`");
    *action = [o] { return RunBench(*o); };
  });
}

}  // namespace kvant::cli
