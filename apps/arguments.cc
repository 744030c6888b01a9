#include "arguments.h"

#include <string_view>

namespace kvant::cli {
namespace {

struct Word {
  std::string_view name, long_flag;
};
constexpr Word kWords[] = {
    {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}, {"-fa", "--flash-attn"},
    {"-ngl", "--n-gpu-layers"}, {"-npl", "--parallel"},     {"-np", "--parallel"},
    {"-npp", "--n-depth"},      {"-ntg", "--n-gen"},
};

}  // namespace

std::vector<std::string> NormaliseArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  bool verbatim = false;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--") verbatim = true;
    const size_t name_bytes = std::min(argument.find('='), argument.size());
    for (const Word& word : kWords) {
      if (verbatim || std::string_view(argument).substr(0, name_bytes) != word.name) continue;
      argument.replace(0, name_bytes, word.long_flag);
      break;
    }
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

}  // namespace kvant::cli
