// Numbers as text that reads back to the same number.
#pragma once

#include <charconv>
#include <string>

namespace kvant {

// The shortest such text.
template <typename T>
std::string NumberText(T number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

}  // namespace kvant
