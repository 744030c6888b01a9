// Evaluation: one context length in one mode. A base and any number of test sessions read the same
// tokens side by side; the base's predictions may come from a file instead.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "eval/divergence.h"
#include "eval/logit_base.h"
#include "eval/summary.h"
#include "kvant/eval.h"
#include "model/session_impl.h"

namespace kvant {

class Evaluation {
 public:
  struct Inputs {
    int64_t ctx_tokens = 0;
    EvalMode mode = EvalMode::kPrefill;
    int64_t max_scored_tokens = 0;  // 0: no limit
    int position_buckets = 1;
    std::optional<Session> base;  // absent where `file` is set
    const LogitBaseReader* file = nullptr;
    LogitBaseWriter* writer = nullptr;  // may be null; gets every row of the base session
    std::vector<Session> tests;         // at least one
  };
  explicit Evaluation(Inputs inputs);

  // Runs chunk `index` of the text. on_tokens(count) after every step; may be empty.
  Status RunChunk(std::span<const int32_t> text, int64_t index, const std::atomic<bool>* cancel,
                  const std::function<void(int64_t)>& on_tokens);

  bool full() const;

  // The figures of one test; those of a floor are left out. REQUIRES: a chunk has run.
  EvalContext Finish(size_t test) const;

 private:
  struct Side {
    Session session;
    Summary summary;
    CacheLedger ledger;  // at the longest
  };

  Status Reset(std::span<const int32_t> text, int64_t index);
  // Scores what is to be scored of the `count` rows that begin at `position` of the chunk.
  Status Score(int64_t position, int64_t count);
  Status ScoreRows(int64_t row, int64_t position, int64_t rows);
  void LoadBase(int64_t row, int64_t position, int64_t rows);
  Status ScoreTest(Side& side, int64_t row, int64_t position, int64_t rows);
  RowScore Compare(int64_t row, int32_t target) const;
  void FillLogits(Session& session, int64_t row, int64_t rows, std::vector<float>& out) const;
  ThreadPool& pool() { return *sides_[0].session.impl().engine->pool; }

  const Inputs inputs_;  // less its sessions
  const int64_t vocab_;
  std::optional<Session> base_;
  std::vector<Side> sides_;
  int64_t chunk_ = 0;
  std::vector<int32_t> tokens_;  // of the chunk, with bos
  // Of up to kLogitRows positions.
  std::vector<float> base_logits_, test_logits_;  // [kLogitRows][vocab]
  std::vector<uint16_t> base_codes_;              // [kLogitRows][vocab], of a file
  std::vector<CodedRow> base_rows_;
  std::vector<RowScore> scores_;
  int64_t longest_ = 0;
  double base_bits_ = 0;
};

}  // namespace kvant
