// kvant: the command line. One file a command; this one only parses, dispatches and reports
// failure.
#include <csignal>
#include <exception>
#include <new>

#include "arguments.h"
#include "command.h"
#include "failure.h"
#include "kvant/isa.h"
#include "kvant_commit.h"
#include "output.h"

namespace kvant::cli {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  kvant run -m model.gguf -p \"Once upon a time\" --kv int4\n"
    "  kvant eval -m model.gguf -f text.txt --kv int4 --ctx 512,2048\n"
    "  kvant tasks -m model.gguf -f text.txt --kv int4,int2 --lengths 512,1024\n"
    "  kvant bench -m model.gguf -n 32 -d 0,1024,8192 -ctk f16,int4 -ctv f16,int4\n"
    "  kvant explain --shape 32,32,128 --context 4096 --kv int4:g128 --device a100-40gb\n"
    "\n"
    "`kvant COMMAND --help` says more. Exit codes: 0 done, 1 failed, 2 wrong usage.";

// CLI11's messages may span lines; an error is one sentence.
std::string OneLine(std::string message) {
  while (!message.empty() && (message.back() == '\n' || message.back() == '.')) message.pop_back();
  for (char& c : message) {
    if (c == '\n') c = ' ';
  }
  return message;
}

// The parser would only say that a command is required.
void CheckCommandName(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0].starts_with('-')) return;
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == arguments[0]) return;
    names += " " + command->get_name();
  }
  throw UsageError("unknown command '" + arguments[0] + "'; possible:" + names);
}

int ParseAndRun(int argc, char** argv) {
  CLI::App app("kvant: an LLM's KV cache in few bits, and faster for it", "kvant");
  app.set_version_flag("--version", "kvant " KVANT_VERSION " (" KVANT_COMMIT ")");
  app.set_help_flag("-h,--help", "Print this help");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  Action action;
  AddRun(app, &action);
  AddEval(app, &action);
  AddTasks(app, &action);
  AddPolicies(app, &action);
  AddBench(app, &action);
  AddExplain(app, &action);
  AddCalibrate(app, &action);
  AddHeads(app, &action);
  AddInspect(app, &action);
  AddMeter(app, &action);
  AddRoofline(app, &action);

  std::vector<std::string> arguments = NormaliseArguments(argc, argv);
  CheckCommandName(app, arguments);
  std::reverse(arguments.begin(), arguments.end());  // the parser takes them from the back
  try {
    app.parse(arguments);
  } catch (const CLI::Success& success) {  // --help and --version
    app.exit(success);
    Flush();
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    throw UsageError(OneLine(error.what()) + "; see kvant --help");
  }
  Check(IsaStatus());
  const int exit_code = action();
  Flush();
  return exit_code;
}

}  // namespace
}  // namespace kvant::cli

int main(int argc, char** argv) {
  // A reader that has seen enough (kvant … | head) ends the program without a word.
  std::signal(SIGPIPE, SIG_DFL);
  try {
    return kvant::cli::ParseAndRun(argc, argv);
  } catch (const kvant::cli::Failure& failure) {
    kvant::cli::Note(failure.what());
    return failure.exit_code();
  } catch (const std::bad_alloc&) {
    kvant::cli::Note("out of memory");
    return kvant::cli::kExitFailed;
  } catch (const std::exception& error) {
    kvant::cli::Note(error.what());
    return kvant::cli::kExitFailed;
  }
}
