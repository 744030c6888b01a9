// Files of golden tokens, which scripts/oracles writes: lines of fields separated by tabs, the
// first of which says what kind of line it is.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace kvant {

// A field's bytes: \xHH stands for one of them.
inline std::string Unescape(const std::string& field) {
  std::string text;
  for (size_t i = 0; i < field.size(); ++i) {
    if (field[i] != '\\') {
      text.push_back(field[i]);
      continue;
    }
    text.push_back(static_cast<char>(std::stoi(field.substr(i + 2, 2), nullptr, 16)));
    i += 3;
  }
  return text;
}

inline std::vector<int32_t> ParseIds(const std::string& field) {
  std::istringstream in(field);
  std::vector<int32_t> ids;
  for (int32_t id; in >> id;) ids.push_back(id);
  return ids;
}

// The lines of one kind of a file in tests/golden, as fields; ids stay text.
inline std::vector<std::vector<std::string>> GoldenLines(const std::string& name,
                                                         const std::string& kind) {
  std::ifstream file(std::string(KVANT_SOURCE_DIR "/tests/golden/") + name);
  EXPECT_TRUE(file.good()) << name;
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> fields(1);
    for (const char c : line) {
      if (c == '\t') {
        fields.emplace_back();
      } else {
        fields.back().push_back(c);
      }
    }
    if (fields[0] == kind) lines.push_back(fields);
  }
  return lines;
}

}  // namespace kvant
