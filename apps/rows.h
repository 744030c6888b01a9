// Results that come one row at a time, printed in any of bench's output formats.
#pragma once

#include <string>
#include <vector>

#include "output.h"
#include "report.h"

namespace kvant::cli {

// jsonl goes out row by row, all else at the end. csv has every field of the rows; table and md
// have the columns that the command chose for people.
class RowPrinter {
 public:
  // format: table, json, jsonl, md or csv.
  RowPrinter(std::string format, std::vector<std::string> columns)
      : format_(std::move(format)), table_(std::move(columns)) {}

  void Add(const Json& row, std::vector<std::string> cells);
  void Finish();

 private:
  std::string format_;
  Table table_;
  std::vector<Json> rows_;
};

}  // namespace kvant::cli
