// The text of a file of head classes:
//   {"kvant_head_classes": 1, "model_hash": "16 hex digits", "layers": .., "kv_heads": ..,
//    "first_tokens": .., "recent_tokens": .., "sparsity": .., "gates": [[..], ..],
//    "checksum": "16 hex digits"}
// The checksum is the XXH64 of the text that Print gives up to the checksum's own member, so it
// holds for the contents, in whatever order and layout they stand.
#include <charconv>
#include <iterator>
#include <utility>

#include "base/json_cursor.h"
#include "base/xxh64.h"
#include "kvant/head_classes.h"
#include "policy/number_text.h"

namespace kvant {
namespace {

constexpr int kVersion = 1;

std::string PrintContents(const HeadClasses& c) {
  std::string text = "{\n  \"kvant_head_classes\": " + NumberText(kVersion);
  text += ",\n  \"model_hash\": \"" + HashText(c.model_hash) + '"';
  text += ",\n  \"layers\": " + NumberText(c.layers);
  text += ",\n  \"kv_heads\": " + NumberText(c.kv_heads);
  text += ",\n  \"first_tokens\": " + NumberText(c.first_tokens);
  text += ",\n  \"recent_tokens\": " + NumberText(c.recent_tokens);
  text += ",\n  \"sparsity\": " + NumberText(c.sparsity);
  text += ",\n  \"gates\": [";
  for (size_t i = 0; i < c.gates.size(); ++i) {
    const auto head = static_cast<int>(i % static_cast<size_t>(c.kv_heads));
    if (head == 0) text += i == 0 ? "\n    [" : ",\n    [";
    text += NumberText(c.gates[i]) + (head + 1 == c.kv_heads ? "]" : ", ");
  }
  return text + "\n  ],\n";
}

uint64_t Checksum(const HeadClasses& classes) {
  const std::string text = PrintContents(classes);
  return Xxh64(std::as_bytes(std::span<const char>(text)));
}

Status ReadHash(JsonCursor* json, uint64_t* hash) {
  std::string_view text;
  KVANT_RETURN_IF_ERROR(json->String(&text));
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *hash, 16);
  if (text.size() == 16 && error == std::errc() && end == text.data() + text.size()) {
    return Status::Ok();
  }
  return json->Wrong("no 16 hexadecimal digits");
}

Status ReadVersion(JsonCursor* json) {
  int version = 0;
  KVANT_RETURN_IF_ERROR(json->Number(&version));
  if (version == kVersion) return Status::Ok();
  return Status::Unsupported("head classes of version " + std::to_string(version) +
                             "; this build reads version " + std::to_string(kVersion));
}

// Rows of one length, which comes back too.
Status ReadGates(JsonCursor* json, std::vector<float>* gates, size_t* row) {
  KVANT_RETURN_IF_ERROR(json->Expect('['));
  for (bool more_rows = true; more_rows;) {
    KVANT_RETURN_IF_ERROR(json->Expect('['));
    const size_t before = gates->size();
    for (bool more = true; more;) {
      KVANT_RETURN_IF_ERROR(json->Number(&gates->emplace_back()));
      KVANT_RETURN_IF_ERROR(json->Continue(']', &more));
    }
    const size_t length = gates->size() - before;
    if (before > 0 && length != *row) return json->Wrong("rows of gates differ in length");
    *row = length;
    KVANT_RETURN_IF_ERROR(json->Continue(']', &more_rows));
  }
  return Status::Ok();
}

struct Members {
  HeadClasses classes;
  size_t gates_a_row = 0;
  uint64_t checksum = 0;
};

constexpr std::string_view kNames[] = {"kvant_head_classes", "model_hash",   "layers",
                                       "kv_heads",           "first_tokens", "recent_tokens",
                                       "sparsity",           "gates",        "checksum"};

Status ReadMember(size_t which, JsonCursor* json, Members* m) {
  switch (which) {
    case 0:
      return ReadVersion(json);
    case 1:
      return ReadHash(json, &m->classes.model_hash);
    case 2:
      return json->Number(&m->classes.layers);
    case 3:
      return json->Number(&m->classes.kv_heads);
    case 4:
      return json->Number(&m->classes.first_tokens);
    case 5:
      return json->Number(&m->classes.recent_tokens);
    case 6:
      return json->Number(&m->classes.sparsity);
    case 7:
      return ReadGates(json, &m->classes.gates, &m->gates_a_row);
    default:
      return ReadHash(json, &m->checksum);
  }
}

Status ReadMembers(JsonCursor* json, Members* members) {
  bool seen[std::size(kNames)] = {};
  KVANT_RETURN_IF_ERROR(json->ForEachMember([&](std::string_view name) {
    size_t which = 0;
    while (which < std::size(kNames) && kNames[which] != name) ++which;
    if (which == std::size(kNames)) {
      return json->Wrong("unknown member '" + std::string(name.substr(0, 64)) + "'");
    }
    if (seen[which]) return json->Wrong("a second '" + std::string(name) + "'");
    seen[which] = true;
    return ReadMember(which, json, members);
  }));
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (!seen[i]) return json->Wrong("no member '" + std::string(kNames[i]) + "'");
  }
  return json->ExpectEnd();
}

}  // namespace

Status CheckHeadClasses(const HeadClasses& c) {
  const auto bad = [](const std::string& what) { return Status::Corrupt("head classes: " + what); };
  if (c.layers < 1 || c.layers > 1024 || c.kv_heads < 1 || c.kv_heads > 4096) {
    return bad(std::to_string(c.layers) + " layers of " + std::to_string(c.kv_heads) +
               " KV heads are not possible");
  }
  if (c.gates.size() != static_cast<size_t>(c.layers) * static_cast<size_t>(c.kv_heads)) {
    return bad(std::to_string(c.gates.size()) + " gates for " + std::to_string(c.layers) +
               " layers of " + std::to_string(c.kv_heads) + " KV heads");
  }
  if (c.first_tokens < 0 || c.recent_tokens < 1) {
    return bad("streaming heads would keep " + std::to_string(c.first_tokens) + " first and " +
               std::to_string(c.recent_tokens) + " recent tokens");
  }
  if (!(c.sparsity >= 0 && c.sparsity <= 1)) {
    return bad("a sparsity of " + NumberText(c.sparsity) + " is not between 0 and 1");
  }
  for (const float gate : c.gates) {
    if (!(gate >= 0 && gate <= 1))
      return bad("a gate of " + NumberText(gate) + " is not between 0 and 1");
  }
  return Status::Ok();
}

std::string PrintHeadClasses(const HeadClasses& classes) {
  return PrintContents(classes) + "  \"checksum\": \"" + HashText(Checksum(classes)) + "\"\n}\n";
}

Result<HeadClasses> ParseHeadClasses(std::string_view text) {
  JsonCursor json(text, "head classes");
  Members members;
  KVANT_RETURN_IF_ERROR(ReadMembers(&json, &members));
  KVANT_RETURN_IF_ERROR(CheckHeadClasses(members.classes));
  if (members.gates_a_row != static_cast<size_t>(members.classes.kv_heads)) {
    return json.Wrong("gates of " + std::to_string(members.gates_a_row) +
                      " KV heads a layer, not " + std::to_string(members.classes.kv_heads));
  }
  if (Checksum(members.classes) != members.checksum) {
    return Status::Corrupt("head classes: the checksum does not fit the contents");
  }
  return std::move(members.classes);
}

}  // namespace kvant
