#include "meter/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

extern char** environ;

namespace kvant {
namespace {

// What posix_spawn wants prepared, released at the end.
struct SpawnSetup {
  SpawnSetup() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    // kvant ends on a closed pipe without a word; other programs expect the usual.
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGINT);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

}  // namespace

Result<TemporaryFolder> TemporaryFolder::Create(const std::string& parent) {
  std::string path = parent + "/kvant-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return Status::Io("cannot make a folder in '" + parent + "': " + std::strerror(errno));
  }
  return TemporaryFolder(path);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // nobody is left to be told
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<ProgramEnd> RunProgram(const std::vector<std::string>& arguments,
                              const std::string& output_path, const std::string& error_path) {
  constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
  SpawnSetup setup;
  posix_spawn_file_actions_addopen(&setup.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&setup.files, STDOUT_FILENO, output_path.c_str(), kWrite, 0600);
  posix_spawn_file_actions_addopen(&setup.files, STDERR_FILENO, error_path.c_str(), kWrite, 0600);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, argv[0], &setup.files, &setup.attributes, argv.data(), environ);
  if (error != 0) {
    return Status::NotFound("cannot run '" + arguments[0] + "': " + std::strerror(error));
  }
  int state = 0;
  while (waitpid(child, &state, 0) < 0) {
    if (errno != EINTR) return Status::Io("lost '" + arguments[0] + "': " + std::strerror(errno));
  }
  if (WIFSIGNALED(state)) return ProgramEnd{-1, WTERMSIG(state)};
  return ProgramEnd{WEXITSTATUS(state), 0};
}

}  // namespace kvant
