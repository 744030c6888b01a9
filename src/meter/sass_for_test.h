// Disassemblies for tests, written by hand in nvdisasm's schema.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace kvant {

// "@P0 BRA 0x40": predicate, opcode, operands, the first and last of which may be absent.
inline std::string InstructionJson(std::string_view line) {
  std::string json = "{";
  if (line.starts_with('@')) {
    json += "\"predicate\":\"" + std::string(line.substr(0, line.find(' '))) + "\",";
    line.remove_prefix(line.find(' ') + 1);
  }
  const size_t space = line.find(' ');
  json += "\"opcode\":\"" + std::string(line.substr(0, space)) + "\"";
  if (space != line.npos) json += ",\"operands\":\"" + std::string(line.substr(space + 1)) + "\"";
  return json + ",\"other-attributes\":{\"any\":[\"\\\"}\",{}]}}";
}

inline std::string FunctionJson(std::string_view name, int start_bytes,
                                std::initializer_list<std::string_view> lines) {
  std::string code;
  for (std::string_view line : lines) code += (code.empty() ? "" : ",") + InstructionJson(line);
  // A length as of releases that count the helpers behind a kernel.
  return "{\"function-name\":\"" + std::string(name) +
         "\",\"start\":" + std::to_string(start_bytes) +
         ",\"length\":4096,\"other-attributes\":[]," + "\"sass-instructions\":[" + code + "]}";
}

inline std::string ListingJson(const std::string& functions) {
  return "[{\"ELF\":{\"layout-id\":4},\"SM\":{\"version\":{\"major\":8,\"minor\":9}},"
         "\"SchemaVersion\":{\"major\":13,\"minor\":5},\"Producer\":\"by hand\"},[" +
         functions + "]]";
}

}  // namespace kvant
