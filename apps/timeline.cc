#include "timeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "failure.h"
#include "kvant/inspect.h"
#include "kvant/mixed_spec.h"
#include "options.h"
#include "report.h"

namespace kvant::cli {
namespace {

constexpr int64_t kEndless = int64_t{1} << 40;

}  // namespace

void TimelineFlags::Add(CLI::App& command) {
  command
      .add_option("--load-session", load_path,
                  "Go on with the timeline in FILE; a prompt, if any, is appended to it")
      ->type_name("FILE");
  command
      .add_option("--save-session", save_path,
                  "Write the timeline to FILE at the end, prompt and answer")
      ->type_name("FILE");
  command.add_flag("--context-shift,--ctx-shift,!--no-context-shift", context_shift,
                   "Drop half of a full context and go on, instead of ending there");
  command
      .add_option("--keep", keep,
                  "Tokens of the prompt that a shift keeps, -1 for all; rounded up to the sinks or "
                  "to pages of 64 [0]")
      ->type_name("N")
      ->check(Count(-1));
}

void TimelineFlags::CheckPossible() const {
  if (keep != 0 && !context_shift) {
    throw UsageError(fmt::format("--keep {} has nothing to act on without --context-shift", keep));
  }
  if (!save_path.empty()) CheckWritable(save_path);
  if (load_path.empty() || Unwrap(IsSnapshotFile(load_path))) return;
  throw Failure(kExitFailed, fmt::format("{}: is no saved session", load_path));
}

void TimelineFlags::CheckSpec(const KvSpec& spec) const {
  if (spec.mixed == nullptr) return;
  if (load_path.empty() && save_path.empty()) return;
  const Status status = CheckMixedSnapshot(spec);
  if (!status.ok()) throw UsageError(status.message());
}

void TimelineFlags::Load(Session& session) const {
  if (!load_path.empty()) Check(session.Load(load_path));
}

void TimelineFlags::Save(Session& session, const GenerateOptions& generate,
                         GenerateResult* result) const {
  if (save_path.empty()) return;
  if (result->decoded_tokens < std::ssize(result->tokens)) {
    if (session.length() == session.context_tokens()) {
      Check(session.Shift(Unwrap(session.PlanShift(generate.shift_keep_tokens.value()))));
      ++result->shifts;
    }
    Check(session.Decode(result->tokens.back()));
    result->ledger = session.ledger();
    result->kv_bytes_read_per_token = session.kv_bytes_read_per_token();
  }
  Check(session.Save(save_path));
}

std::optional<int64_t> TimelineFlags::ShiftKeep(int64_t prompt_tokens) const {
  if (!context_shift) return std::nullopt;
  return keep < 0 ? prompt_tokens : std::min(keep, prompt_tokens);
}

int64_t TimelineFlags::Room(int64_t tokens, int64_t context_tokens) const {
  const int64_t room = context_tokens - tokens + (save_path.empty() ? 1 : 0);
  return context_shift && room > 0 ? kEndless : room;
}

}  // namespace kvant::cli
