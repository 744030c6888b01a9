// The rows of `kvant bench`: llama-bench's fields, and what kvant adds to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "busy_report.h"
#include "kvant/format.h"
#include "kvant/machine_load.h"
#include "kvant/model.h"
#include "model_options.h"
#include "rows.h"

namespace kvant::cli {

// One thing to time at a depth: `tokens` of prompt, or of answer in each of `parallel` sequences.
struct BenchTest {
  int64_t prompt_tokens = 0, answer_tokens = 0;
  int64_t parallel = 1;

  // llama-bench's name: "tg32 x16 @ d2048 s1536" where `shared` tokens of the depth are common.
  std::string Name(int64_t depth, int64_t shared) const;
  int64_t tokens() const { return prompt_tokens + answer_tokens * parallel; }
};

class BenchRows {
 public:
  // All references outlive the rows. read_bytes_per_s: of this machine's memory.
  BenchRows(const std::string& format, const ModelFlags& flags, const Model& model,
            double read_bytes_per_s);

  // steps_ns: the steps of an answer, one by one, of all repetitions; empty: of a prompt.
  // kv_read_bytes: of the cache by a step, all sequences together.
  void Add(const BenchTest& test, int64_t depth, int64_t shared_tokens, const KvSpec& spec,
           const std::vector<int64_t>& samples_ns, const std::vector<double>& steps_ns,
           double kv_read_bytes, const std::optional<MachineLoad>& load);
  // Ends the output; a quiet one says nothing about a busy machine.
  void Finish(bool quiet);

 private:
  std::string ModelType() const;
  Json Row(const BenchTest& test, int64_t depth, int64_t shared_tokens, const KvSpec& spec,
           const std::vector<double>& samples_ns, const std::vector<double>& tokens_per_s) const;
  void AddReading(const BenchTest& test, double median_ns, double kv_read_bytes, Json* row) const;

  const ModelFlags& flags_;
  const Model& model_;
  const double read_bytes_per_s_;
  RowPrinter printer_;
  Json header_;
  BusyReport busy_;
};

}  // namespace kvant::cli
