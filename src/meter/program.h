// Program: starts another program, without a shell, and a folder for what it writes.
#pragma once

#include <string>
#include <vector>

#include "kvant/status.h"

namespace kvant {

// A new, empty folder that goes with everything in it when this object does.
class TemporaryFolder {
 public:
  // Within `parent`. kIo.
  static Result<TemporaryFolder> Create(const std::string& parent);
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

struct ProgramEnd {
  int exit_code = 0;  // -1: a signal ended it
  int signal = 0;
};

// Runs `arguments`, the first of which is the program's path, with nothing to read, standard output
// and error in files that it makes, and waits for its end. Arguments reach the program as they are.
// A program that Ctrl-C ends is no failure here: it is told in the result. kNotFound where the
// program cannot be started, kIo.
Result<ProgramEnd> RunProgram(const std::vector<std::string>& arguments,
                              const std::string& output_path, const std::string& error_path);

}  // namespace kvant
