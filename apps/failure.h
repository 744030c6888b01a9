// How a command fails: an exception with the exit code and the one sentence that main prints.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "kvant/status.h"

namespace kvant::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

class Failure : public std::runtime_error {
 public:
  Failure(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

inline Failure UsageError(const std::string& message) { return {kExitUsage, message}; }

// An impossible request is wrong usage wherever it was noticed; everything else is a failed run.
inline Failure FailureOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return {kExitUsage, status.message()};
    case StatusCode::kCancelled:
      return {kExitInterrupted, "interrupted"};
    default:
      return {kExitFailed, status.message()};
  }
}

inline void Check(const Status& status) {
  if (!status.ok()) throw FailureOf(status);
}

template <typename T>
T Unwrap(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

// For what the user typed: any refusal is wrong usage.
inline void CheckArgument(const Status& status) {
  if (!status.ok()) throw UsageError(status.message());
}

template <typename T>
T UnwrapArgument(Result<T> result) {
  CheckArgument(result.status());
  return std::move(result).value();
}

}  // namespace kvant::cli
