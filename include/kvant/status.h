// Status and Result<T>: how every fallible call of kvant reports failure.
//
// The library never throws on its own account, never aborts and never prints. A failed call says in
// one sentence what was wrong and names the value that caused it; nothing is half-written.
// Thread rules: plain values, no shared state.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace kvant {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,  // the caller asked for something impossible (usage; exit code 2 in the CLI)
  kNotFound,         // a file or key that does not exist
  kCorrupt,          // untrusted bytes that do not hold what they claim
  kUnsupported,      // well-formed, but not something this build can do
  kOutOfMemory,      // an allocation or a budget that was refused
  kOutOfRange,       // longer than the context, past the end
  kIo,               // the operating system refused to read or write
  kCancelled,        // the caller asked to stop
};

// A code and, unless ok, one sentence without a trailing full stop.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }
  static Status InvalidArgument(std::string m) {
    return {StatusCode::kInvalidArgument, std::move(m)};
  }
  static Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
  static Status Corrupt(std::string m) { return {StatusCode::kCorrupt, std::move(m)}; }
  static Status Unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
  static Status OutOfMemory(std::string m) { return {StatusCode::kOutOfMemory, std::move(m)}; }
  static Status OutOfRange(std::string m) { return {StatusCode::kOutOfRange, std::move(m)}; }
  static Status Io(std::string m) { return {StatusCode::kIo, std::move(m)}; }
  static Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// Either a value or the Status that explains its absence. T need not be default-constructible.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok().
  T& value() & {
    assert(ok());
    return *value_;
  }
  const T& value() const& {
    assert(ok());
    return *value_;
  }
  T&& value() && {
    assert(ok());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

// Returns the failing Status of `expr` from the enclosing function.
#define KVANT_RETURN_IF_ERROR(expr)                \
  do {                                             \
    ::kvant::Status kvant_status_ = (expr);        \
    if (!kvant_status_.ok()) return kvant_status_; \
  } while (0)

#define KVANT_CONCAT_INNER(a, b) a##b
#define KVANT_CONCAT(a, b) KVANT_CONCAT_INNER(a, b)

// KVANT_ASSIGN_OR_RETURN(auto x, MakeX()): binds the value or returns the failing Status.
#define KVANT_ASSIGN_OR_RETURN(lhs, expr) \
  KVANT_ASSIGN_OR_RETURN_IMPL(KVANT_CONCAT(kvant_result_, __LINE__), lhs, expr)
#define KVANT_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                \
  if (!tmp.ok()) return tmp.status();               \
  lhs = std::move(tmp).value()

}  // namespace kvant
