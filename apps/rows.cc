#include "rows.h"

namespace kvant::cli {
namespace {

std::string CsvCell(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

}  // namespace

void RowPrinter::Add(const Json& row, std::vector<std::string> cells) {
  if (format_ == "jsonl") {
    Write(Dump(row, -1));
    Flush();
    return;
  }
  rows_.push_back(row);
  table_.Add(std::move(cells));
}

void RowPrinter::Finish() {
  if (format_ == "table") Write(table_.Text(""));
  if (format_ == "md") Write(table_.Markdown());
  if (format_ == "json") Write(Dump(Json(rows_), 2));
  if (format_ != "csv" || rows_.empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, value] : rows_[0].items()) names.push_back(name);
  Table csv(names);
  for (const Json& row : rows_) {
    std::vector<std::string> cells;
    for (const std::string& name : names) cells.push_back(CsvCell(row.value(name, Json())));
    csv.Add(std::move(cells));
  }
  Write(csv.Csv());
}

}  // namespace kvant::cli
