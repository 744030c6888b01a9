#include "kvant/meter.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <span>

#include "meter/cubin.h"
#include "meter/loop_count.h"
#include "meter/program.h"
#include "meter/sass.h"

namespace kvant {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

Status CheckFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return Status::NotFound("'" + path + "' is no file that can be read");
  }
  if (static_cast<int64_t>(std::filesystem::file_size(path, error)) > kMaxFileBytes) {
    return Status::Unsupported("'" + path + "' has more than 1 GiB");
  }
  return Status::Ok();
}

Result<std::string> ReadFile(const std::string& path) {
  KVANT_RETURN_IF_ERROR(CheckFile(path));
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) return Status::Io("cannot read '" + path + "'");
  return bytes;
}

// The line that says what was wrong: compilers print notes and remarks around it.
std::string FirstError(const std::string& text) {
  std::string first;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (line.find("error") != line.npos || line.find("fatal") != line.npos) return line;
    if (first.empty()) first = line;
    begin = end + 1;
  }
  return first.empty() ? "it gave no reason" : first;
}

// Programs and files of one call of MeterFile.
class Workshop {
 public:
  Workshop(const MeterOptions& options, TemporaryFolder folder)
      : options_(options), folder_(std::move(folder)) {}

  // The path of the cubin.
  Result<std::string> Compile(const std::string& source, int target) {
    const std::string cubin = folder_.PathOf("sm_" + std::to_string(target) + ".cubin");
    std::vector<std::string> arguments = {
        options_.nvcc, "-cubin", "-O3", "-arch=sm_" + std::to_string(target), "-o", cubin};
    arguments.insert(arguments.end(), options_.compiler_options.begin(),
                     options_.compiler_options.end());
    arguments.push_back(source);
    KVANT_RETURN_IF_ERROR(Run(arguments));
    return cubin;
  }

  // Of one function, if its symbol's number is given: a library of kernels has megabytes of text.
  Result<SassListing> Disassemble(const std::string& cubin, int symbol) {
    std::vector<std::string> arguments = {options_.nvdisasm, "-json"};
    if (symbol != 0) arguments.insert(arguments.end(), {"-fun", std::to_string(symbol)});
    arguments.push_back(cubin);
    KVANT_RETURN_IF_ERROR(Run(arguments));
    KVANT_ASSIGN_OR_RETURN(const std::string json, ReadFile(folder_.PathOf("output")));
    return ParseSass(json);
  }

 private:
  Status Run(const std::vector<std::string>& arguments) {
    const std::string name = std::filesystem::path(arguments[0]).filename();
    const std::string error_path = folder_.PathOf("error");
    KVANT_ASSIGN_OR_RETURN(const ProgramEnd end,
                           RunProgram(arguments, folder_.PathOf("output"), error_path));
    if (end.signal == SIGINT || (options_.cancel != nullptr && options_.cancel->load())) {
      return Status::Cancelled("interrupted");
    }
    if (end.signal != 0) {
      return Status::Io(name + " was ended by signal " + std::to_string(end.signal));
    }
    if (end.exit_code == 0) return Status::Ok();
    KVANT_ASSIGN_OR_RETURN(const std::string errors, ReadFile(error_path));
    return Status::Unsupported(name + " refused '" + arguments.back() + "': " + FirstError(errors));
  }

  const MeterOptions& options_;
  TemporaryFolder folder_;
};

// 0 for no name.
Result<int> SymbolOf(const std::string& kernel,
                     const std::map<std::string, KernelResources>& resources) {
  if (kernel.empty()) return 0;
  std::string names;
  for (const auto& [name, resource] : resources) {
    if (name == kernel) return resource.symbol;
    if (!name.starts_with('$')) names += " " + name;
  }
  return Status::InvalidArgument("no kernel '" + kernel + "'; there are" + names);
}

Result<std::vector<KernelMeter>> MeterCubin(const std::string& cubin, const MeterOptions& options,
                                            Workshop* workshop) {
  KVANT_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(cubin));
  KVANT_ASSIGN_OR_RETURN(const auto resources,
                         ReadCubin(std::as_bytes(std::span<const char>(bytes))));
  KVANT_ASSIGN_OR_RETURN(const int symbol, SymbolOf(options.kernel, resources));
  KVANT_ASSIGN_OR_RETURN(const SassListing listing, workshop->Disassemble(cubin, symbol));
  std::vector<KernelMeter> kernels;
  for (const SassFunction& function : listing.functions) {
    if (function.is_helper() || (symbol != 0 && function.name != options.kernel)) continue;
    KernelMeter& kernel = kernels.emplace_back();
    kernel.kernel = function.name;
    kernel.target = listing.target;
    const auto found = resources.find(function.name);
    if (found == resources.end()) {
      return Status::Corrupt("cubin: no register count of '" + function.name + "'");
    }
    kernel.registers = found->second.registers;
    kernel.stack_bytes = found->second.stack_bytes;
    kernel.shared_bytes = found->second.shared_bytes;
    kernel.spill_bytes = SpillBytes(function);
    KVANT_ASSIGN_OR_RETURN(kernel.loops, CountLoops(function, options));
  }
  if (kernels.empty()) return Status::Corrupt("'" + cubin + "' has no kernel");
  return kernels;
}

}  // namespace

int64_t LoopCount::Issued() const {
  return std::accumulate(instructions.begin(), instructions.end(), int64_t{0});
}

int64_t LoopCount::CoreCount() const {
  int64_t count = 0;
  for (Pipe pipe : {Pipe::kAlu, Pipe::kFma, Pipe::kHalf2, Pipe::kXu, Pipe::kFp64, Pipe::kUniform}) {
    count += Of(pipe);
  }
  return count;
}

double LoopCount::FetchedPerPayloadByte() const {
  return 1 + metadata_bytes / static_cast<double>(payload_bytes);
}

Result<std::vector<KernelMeter>> MeterFile(const std::string& path, const MeterOptions& options) {
  if (options.payload_bytes < 0 || !(options.metadata_bytes >= 0)) {
    return Status::InvalidArgument("bytes of an iteration cannot be negative");
  }
  if (options.loaded_bytes != 0 &&
      (options.payload_bytes == 0 || options.loaded_bytes < options.payload_bytes)) {
    return Status::InvalidArgument("an iteration cannot load " +
                                   std::to_string(options.loaded_bytes) + " bytes and of these " +
                                   std::to_string(options.payload_bytes) + " of payload");
  }
  KVANT_RETURN_IF_ERROR(CheckFile(path));  // of a cubin, MeterCubin reads it
  KVANT_ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::Create(options.temporary_folder));
  Workshop workshop(options, std::move(folder));
  // The programs would read names that begin with a dash as flags.
  const std::string file = std::filesystem::absolute(path);
  const std::string extension = std::filesystem::path(path).extension();
  if (extension != ".cu" && extension != ".ptx") return MeterCubin(file, options, &workshop);
  std::vector<KernelMeter> all;
  for (int target : options.targets) {
    KVANT_ASSIGN_OR_RETURN(const std::string cubin, workshop.Compile(file, target));
    KVANT_ASSIGN_OR_RETURN(std::vector<KernelMeter> kernels, MeterCubin(cubin, options, &workshop));
    all.insert(all.end(), kernels.begin(), kernels.end());
  }
  return all;
}

}  // namespace kvant
