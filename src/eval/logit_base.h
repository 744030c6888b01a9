// A base file: the predictions of one cache (or engine) on a text, for others to be compared with.
// The layout is that of llama.cpp's perplexity tool (--kl-divergence-base), little-endian:
//
//   "_logits_"
//   i32 ctx, i32 vocab, i32 chunks
//   i32 tokens [chunks][ctx]        the text; the bos that a chunk may begin with is not in it
//   rows [chunks][ctx - 1 - ctx / 2]   of the positions ctx / 2 .. ctx - 2 of every chunk:
//     f32 step, f32 least              log p = least + step * code
//     u16 code [vocab], one more as padding where vocab is odd
//
// Logits more than 16 below the row's top are held as 16 below it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eval/divergence.h"
#include "gguf/atomic_file.h"
#include "gguf/mapped_file.h"
#include "kvant/eval.h"
#include "kvant/status.h"

namespace kvant {

// Bytes of one row.
inline constexpr int64_t LogitRowBytes(int64_t vocab) { return 8 + 2 * (vocab + vocab % 2); }
// Rows of one chunk.
inline constexpr int64_t LogitRowsOf(int64_t ctx) { return ctx - 1 - ctx / 2; }

// Reads rows of a file. Thread rules: const calls from any thread.
class LogitBaseReader {
 public:
  // Errors as ReadLogitBase. The length is checked, so no later call can run past the end.
  static Result<LogitBaseReader> Open(const std::string& path);

  const LogitBaseSummary& summary() const { return summary_; }
  const std::string& path() const { return path_; }

  // kInvalidArgument unless the file holds predictions over this vocabulary for this text in chunks
  // of ctx tokens, as many of them as both have.
  Status CheckFits(std::span<const int32_t> text, int64_t ctx, int64_t vocab) const;

  // Fills codes [vocab] and the rest of `row`, which points to them. REQUIRES: 0 <= index <
  // chunks * LogitRowsOf(ctx).
  void ReadRow(int64_t index, uint16_t* codes, CodedRow* row) const;

 private:
  std::string path_;
  LogitBaseSummary summary_;
  MappedFile file_;
  int64_t rows_offset_ = 0;
};

// Writes a file row by row; nothing appears under its name before Commit.
class LogitBaseWriter {
 public:
  // tokens [chunks * ctx]. Errors as AtomicFile.
  static Result<LogitBaseWriter> Create(const std::string& path, int64_t ctx, int64_t vocab,
                                        std::span<const int32_t> tokens);

  // Logits of `rows` consecutive positions, [rows][vocab], finite.
  Status Add(const float* logits, int64_t rows);
  // kInvalidArgument when rows are missing.
  Status Commit();

 private:
  LogitBaseWriter(AtomicFile file, int64_t vocab, int64_t rows)
      : file_(std::move(file)), vocab_(vocab), missing_rows_(rows) {}

  AtomicFile file_;
  int64_t vocab_;
  int64_t missing_rows_;
  std::vector<std::byte> bytes_;  // of the rows of one call
};

}  // namespace kvant
