// kvant run: generates text and accounts for what its cache cost.
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "command.h"
#include "failure.h"
#include "kvant/generate.h"
#include "kvant/mixed_spec.h"
#include "kvant/roofline.h"
#include "model_options.h"
#include "output.h"
#include "report.h"
#include "timeline.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant run -m model.gguf -p \"Once upon a time\" --kv int4\n"
    "  kvant run -m model.gguf -f book.txt --prompt-tokens 3000 -n 64 --temp 0 --stats run.json\n"
    "  kvant run -m model.gguf --chat -p \"Name three rivers.\"\n"
    "  kvant run -m model.gguf -f book.txt --save-session book.kv\n"
    "\n"
    "The text goes to standard output, the ledger to standard error.";

struct RunOptions {
  ModelFlags model;
  KvFlags kv;
  CompatibilityFlags compatibility;
  GenerateOptions generate;
  std::string prompt, file, system, stats;
  int64_t prompt_tokens = 0;  // 0: all
  TimelineFlags timeline;
  bool has_prompt = false, chat = false, json = false, verbose = false;
};

std::vector<int32_t> EncodePrompt(const RunOptions& options, const Model& model,
                                  const std::string& text) {
  const Tokenizer& tokenizer = model.tokenizer();
  // The beginning of a timeline only has one.
  const bool drops_bos =
      !options.chat && !options.timeline.load_path.empty() && tokenizer.add_bos();
  std::vector<int32_t> tokens;
  if (options.chat) {
    std::vector<ChatTurn> turns;
    if (!options.system.empty()) turns.push_back({"system", options.system});
    turns.push_back({"user", text});
    tokens = Unwrap(model.EncodeChat(turns));
  } else if (options.prompt_tokens > 0) {
    tokens = Unwrap(tokenizer.EncodeFirst(text, options.prompt_tokens + (drops_bos ? 1 : 0)));
  } else {
    tokens = Unwrap(tokenizer.Encode(text, false));
  }
  if (drops_bos && !tokens.empty()) tokens.erase(tokens.begin());
  if (options.prompt_tokens > 0) {
    if (static_cast<int64_t>(tokens.size()) < options.prompt_tokens) {
      throw Failure(kExitFailed, fmt::format("--prompt-tokens {}: the prompt has only {} tokens",
                                             options.prompt_tokens, tokens.size()));
    }
    tokens.resize(static_cast<size_t>(options.prompt_tokens));
  }
  if (tokens.empty() && options.timeline.load_path.empty()) {
    throw Failure(kExitFailed, "the prompt has no tokens");
  }
  return tokens;
}

// tokens: of the timeline with its prompt.
GenerateOptions FitToContext(const RunOptions& o, int64_t tokens, int64_t context_tokens) {
  GenerateOptions generate = o.generate;
  const int64_t room = o.timeline.Room(tokens, context_tokens);
  if (generate.max_tokens < 0 && room > 0) generate.max_tokens = room;
  if (room > 0 && generate.max_tokens <= room) return generate;
  throw Failure(kExitFailed,
                fmt::format("a prompt of {} and {} new tokens do not fit the context of {} tokens",
                            tokens, std::max<int64_t>(generate.max_tokens, 1), context_tokens));
}

// Streams the answer unless it is to be part of a JSON. A prompt that was interrupted leaves what
// its finished chunks cost.
GenerateResult RunSession(const RunOptions& o, const GenerateOptions& generate, const Model& model,
                          Session& session, const std::vector<int32_t>& prompt) {
  Progress bar("prompt");
  const int64_t loaded_tokens = session.length();
  const RunControl control = ControlOf(&bar);
  const auto show = [&](std::string_view text) {
    bar.Clear();
    if (o.json) return;
    Write(text);
    Flush();
  };
  Result<GenerateResult> result = Generate(session, prompt, generate, show, control);
  if (result.status().code() != StatusCode::kCancelled) return Unwrap(std::move(result));
  GenerateResult interrupted;
  interrupted.stop_reason = StopReason::kCancelled;
  interrupted.prompt_tokens = std::max<int64_t>(0, session.length() - loaded_tokens);
  interrupted.ledger = session.ledger();
  interrupted.kv_bytes_read_per_token = session.kv_bytes_read_per_token();
  interrupted.weight_bytes_read_per_token = model.weight_bytes_read_per_token();
  return interrupted;
}

// Null where nothing was timed.
Json Rate(double value) { return value > 0 ? Json(value) : Json(); }

// Null for a cache of one width.
Json WidthsJson(const CacheLedger& ledger) {
  Json list;
  for (const WidthLedger& width : ledger.widths) {
    list.push_back({{"width", width.width},
                    {"head_tokens", width.head_tokens},
                    {"page_bytes", width.page_bytes}});
  }
  return list;
}

Json LedgerJson(const GenerateResult& r, const ReadBandwidth& bandwidth) {
  const CacheLedger& l = r.ledger;
  return {{"tokens", l.tokens},
          {"kv_bytes", l.kv_bytes},
          {"code_bytes", l.code_bytes},
          {"metadata_bytes", l.metadata_bytes},
          {"window_bytes", l.window_bytes},
          {"sink_bytes", l.sink_bytes},
          {"padding_bytes", l.padding_bytes},
          {"allocated_bytes", l.allocated_bytes},
          {"recoded_tokens", l.recoded_tokens},
          {"effective_bits", l.effective_bits},
          {"widths", WidthsJson(l)},
          {"dropped_head_tokens", l.widths.empty() ? Json() : Json(l.dropped_head_tokens)},
          {"requantised_head_tokens", l.widths.empty() ? Json() : Json(l.requantised_head_tokens)},
          {"bytes_read_per_token", r.weight_bytes_read_per_token + r.kv_bytes_read_per_token},
          {"kv_bytes_read_per_token", r.kv_bytes_read_per_token},
          {"weight_bytes_read_per_token", r.weight_bytes_read_per_token},
          {"prefill_tokens_per_s", Rate(r.prefill_tokens_per_s())},
          {"decode_tokens_per_s", Rate(r.decode_tokens_per_s())},
          {"decode_GBps", Rate(r.decode_gb_per_s())},
          {"read_bw_GBps", bandwidth.best_bytes_per_s / 1e9}};
}

int64_t PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

Json RunJson(const RunOptions& o, const Model& model, const Session& session,
             const GenerateResult& r, const Json& ledger) {
  Json json = Header(session.threads());
  AddModel(model.path(), model.file_bytes(), model.file_hash(), &json);
  json["formats"] = LayerFormatsJson(session.kv(), model.geometry().layers);
  json["kv_sinks_tokens"] = session.kv().sinks_tokens;
  json["kv_window_tokens"] = session.kv().window_tokens;
  json["context_tokens"] = session.context_tokens();
  const SamplerOptions& sampler = o.generate.sampler;
  json["sampler"] = {{"temperature", Shortest(sampler.temperature)},
                     {"top_k", sampler.top_k},
                     {"top_p", Shortest(sampler.top_p)},
                     {"min_p", Shortest(sampler.min_p)},
                     {"seed", sampler.seed}};
  json["prompt_tokens"] = r.prompt_tokens;
  json["timeline_tokens"] = session.length();
  json["shifts"] = r.shifts;
  json["stop"] = StopReasonName(r.stop_reason);
  json["text"] = r.text;
  json["tokens"] = r.tokens;
  json["ledger"] = ledger;
  json["prefill_ms"] = 1e3 * r.prefill_seconds;
  json["decode_ms"] = 1e3 * r.decode_seconds;
  json["decode_steps"] = r.decoded_tokens;
  json["peak_memory_bytes"] = PeakMemoryBytes();
  return json;
}

std::string RateText(const Json& tokens_per_s) {
  return tokens_per_s.is_null() ? "not timed"
                                : fmt::format("{:.1f} tokens/s", tokens_per_s.get<double>());
}

// Tokens are counted once a layer and KV head; pages that are not full count as window.
std::string WidthsText(const CacheLedger& ledger) {
  if (ledger.widths.empty()) return "";
  Table table({"", "head tokens", "bytes of full pages"});
  for (const WidthLedger& width : ledger.widths) {
    table.Add({fmt::format("width {}", width.width), Grouped(width.head_tokens),
               Grouped(width.page_bytes)});
  }
  table.Add({"dropped", Grouped(ledger.dropped_head_tokens), ""});
  return "\n" + table.Text();
}

// The same figures as the JSON's ledger, for people.
std::string LedgerText(const GenerateResult& r, const Json& ledger, const std::string& formats) {
  const auto bytes = [&](const char* field) { return HumanBytes(ledger[field].get<double>()); };
  std::string text = fmt::format("KV cache of {}: {}\n",
                                 Plural(ledger["tokens"].get<int64_t>(), "token"), formats);
  Table table({"", "bytes", ""});
  const std::pair<const char*, const char*> kLines[] = {
      {"codes", "code_bytes"},         {"metadata", "metadata_bytes"}, {"window", "window_bytes"},
      {"sinks", "sink_bytes"},         {"padding", "padding_bytes"},   {"together", "kv_bytes"},
      {"allocated", "allocated_bytes"}};
  for (const auto& [name, field] : kLines) {
    table.Add({name, Grouped(ledger[field].get<int64_t>()), bytes(field)});
  }
  text += table.Text() + WidthsText(r.ledger);
  text += fmt::format("  {:.2f} bits a value. A step reads {}: {} of weights and {} of cache.\n",
                      ledger["effective_bits"].get<double>(), bytes("bytes_read_per_token"),
                      bytes("weight_bytes_read_per_token"), bytes("kv_bytes_read_per_token"));
  if (r.shifts > 0) {
    text += fmt::format("  The context was shifted {}, {} coded again.\n",
                        r.shifts == 1 ? "once" : fmt::format("{} times", r.shifts),
                        Plural(r.ledger.recoded_tokens, "token"));
  }
  text += fmt::format("  Prompt  {}, {}\n", Plural(r.prompt_tokens, "token"),
                      RateText(ledger["prefill_tokens_per_s"]));
  text += fmt::format("  Decode  {}, {}", Plural(r.decoded_tokens, "step"),
                      RateText(ledger["decode_tokens_per_s"]));
  if (!ledger["decode_GBps"].is_null()) {
    const double rate = ledger["decode_GBps"].get<double>(),
                 limit = ledger["read_bw_GBps"].get<double>();
    text += fmt::format(
        ", {:.2f} ms each: {:.2f} GB/s, {:.0f} % of the {:.2f} GB/s that this machine reads",
        1e3 * r.decode_seconds / static_cast<double>(r.decoded_tokens), rate, 100 * rate / limit,
        limit);
  }
  return text + "\n";
}

void PrintSetup(const Model& model, const Session& session) {
  const KvGeometry g = model.geometry();
  Note(fmt::format("{} ({}): {}, {}, {}", model.name(), model.architecture(),
                   Plural(g.layers, "layer"), CachedText(g), Plural(g.q_heads, "query head")));
  Note(fmt::format("{}, context {} tokens, {} sinks, window {}",
                   Plural(session.threads(), "thread"), session.context_tokens(),
                   session.kv().sinks_tokens, session.kv().window_tokens));
  const std::vector<FormatPair> formats = session.layer_formats();
  for (size_t layer = 0; layer < formats.size(); ++layer) {
    Note(fmt::format("layer {}: K {}, V {}", layer, FormatSpec(formats[layer].k),
                     FormatSpec(formats[layer].v)));
  }
}

void CheckRequest(const RunOptions& o) {
  o.compatibility.CheckPossible();
  const int prompts = (o.has_prompt ? 1 : 0) + (o.file.empty() ? 0 : 1);
  if (prompts > 1 || (prompts == 0 && o.timeline.load_path.empty())) {
    throw UsageError("run needs either -p TEXT or -f FILE");
  }
  if (!o.system.empty() && !o.chat) throw UsageError("--system needs --chat");
  if (!o.timeline.load_path.empty() && o.chat) {
    throw UsageError("--chat begins a conversation, --load-session goes on with one; give one");
  }
  o.timeline.CheckPossible();
  Check(o.generate.sampler.Validate());
  if (!o.stats.empty()) CheckWritable(o.stats);
}

int RunRun(const RunOptions& o) {
  CheckRequest(o);
  const KvSpec spec = o.kv.Spec();
  o.kv.CheckPolicyActs();
  o.timeline.CheckSpec(spec);
  const int64_t budget_bytes = o.kv.BudgetBytes(spec);
  const std::string text = o.file.empty() ? o.prompt : ReadTextFile(o.file);
  o.model.CheckFits(o.model.Inspect(), spec);
  // Before the weights: its buffer is then no part of the run's peak memory.
  const ReadBandwidth bandwidth = Unwrap(MeasureReadBandwidth(o.model.threads));

  const Model model = o.model.Load();
  const std::vector<int32_t> prompt = EncodePrompt(o, model, text);
  Session session = Unwrap(Session::Create(model, o.model.Session(spec, budget_bytes)));
  o.timeline.Load(session);
  GenerateOptions generate =
      FitToContext(o, session.length() + std::ssize(prompt), session.context_tokens());
  generate.shift_keep_tokens = o.timeline.ShiftKeep(session.length() + std::ssize(prompt));
  if (o.verbose) PrintSetup(model, session);
  CatchInterrupt();
  GenerateResult result = RunSession(o, generate, model, session, prompt);
  const bool read_prompt =
      result.stop_reason != StopReason::kCancelled || result.decoded_tokens > 0;
  if (read_prompt) o.timeline.Save(session, generate, &result);
  const Json ledger = LedgerJson(result, bandwidth);
  const Json report = RunJson(o, model, session, result, ledger);
  if (!o.stats.empty()) WriteFile(o.stats, Dump(report, 2));
  if (o.json) {
    Write(Dump(report, 2));
  } else {
    Write("\n");
    Flush();
    fmt::print(stderr, "\n{}",
               LedgerText(result, ledger, LayerFormatsText(session.kv(), model.geometry().layers)));
  }
  return result.stop_reason == StopReason::kCancelled ? kExitInterrupted : kExitDone;
}

}  // namespace

void AddRun(CLI::App& root, Action* action) {
  const auto o = std::make_shared<RunOptions>();
  o->generate.max_tokens = 64;
  CLI::App* const command =
      root.add_subcommand("run", "Generate text; ends with the ledger of its cache");
  command->footer(kFooter);
  o->model.Add(*command);
  CLI::Option* const prompt =
      command->add_option("-p,--prompt", o->prompt, "The prompt")->type_name("TEXT");
  command->add_option("-f,--file", o->file, "A file with the prompt, - for standard input")
      ->type_name("FILE");
  command->add_option("--prompt-tokens", o->prompt_tokens, "Only the first N tokens of the prompt")
      ->type_name("N")
      ->check(Count(1));
  command
      ->add_option("-n,--predict", o->generate.max_tokens,
                   "New tokens at most, -1 for what the context holds [64]")
      ->type_name("N")
      ->check(Count(-1));
  command->add_option("-c,--ctx-size", o->model.context_tokens, "Longest timeline [the model's]")
      ->type_name("N")
      ->check(Count(0));
  command->add_flag("--chat", o->chat, "Put the prompt into the model's chat template");
  command->add_option("--system", o->system, "System message of --chat")->type_name("TEXT");
  command->add_option("--temp", o->generate.sampler.temperature, "Temperature, 0 for greedy [0.8]")
      ->type_name("X");
  command->add_option("--top-k", o->generate.sampler.top_k, "Keep the K likeliest, 0 for all [40]")
      ->type_name("K");
  command
      ->add_option("--top-p", o->generate.sampler.top_p,
                   "Keep the likeliest that sum to P, 1 for all [0.95]")
      ->type_name("P");
  command
      ->add_option("--min-p", o->generate.sampler.min_p,
                   "Keep those P times as likely as the first [0.05]")
      ->type_name("P");
  command
      ->add_option("-r,--reverse-prompt", o->generate.stop,
                   "Stop before this text; may be given again")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command->add_option("-s,--seed", o->generate.sampler.seed, "Seed of the sampler [0]")
      ->type_name("N");
  command->add_flag("--ignore-eos", o->generate.ignore_end, "Go on after the model's end of text");
  o->timeline.Add(*command);
  o->kv.AddFormat(*command);
  o->kv.AddPolicy(*command);
  o->kv.AddTokenPolicy(*command);
  o->kv.AddBudget(*command);
  o->compatibility.Add(*command);
  command->add_flag("--json", o->json, "Print one JSON object instead of the text");
  command->add_option("--stats", o->stats, "Also write that JSON object to FILE")
      ->type_name("FILE");
  command->add_flag("--verbose", o->verbose,
                    "Say what was set up, with the formats of every layer");
  command->callback([o, prompt, action] {
    o->has_prompt = prompt->count() > 0;
    *action = [o] { return RunRun(*o); };
  });
}

}  // namespace kvant::cli
