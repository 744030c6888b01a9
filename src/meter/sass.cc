#include "meter/sass.h"

#include "base/json_cursor.h"

namespace kvant {
namespace {

Status ReadText(JsonCursor* json, std::string* text) {
  std::string_view view;
  KVANT_RETURN_IF_ERROR(json->String(&view));
  *text = view;
  return Status::Ok();
}

Status ReadInstruction(JsonCursor* json, SassInstruction* instruction) {
  KVANT_RETURN_IF_ERROR(json->ForEachMember([&](std::string_view name) {
    if (name == "predicate") return ReadText(json, &instruction->predicate);
    if (name == "opcode") return ReadText(json, &instruction->opcode);
    if (name == "operands") return ReadText(json, &instruction->operands);
    return json->SkipValue();
  }));
  return instruction->opcode.empty() ? json->Wrong("an instruction without an opcode")
                                     : Status::Ok();
}

Status ReadFunction(JsonCursor* json, SassFunction* function) {
  bool has_code = false;
  KVANT_RETURN_IF_ERROR(json->ForEachMember([&](std::string_view name) {
    if (name == "function-name") return ReadText(json, &function->name);
    if (name == "start") return json->Number(&function->start_bytes);
    if (name != "sass-instructions") return json->SkipValue();
    has_code = true;
    return json->ForEachElement(
        [&] { return ReadInstruction(json, &function->instructions.emplace_back()); });
  }));
  if (function->name.empty()) return json->Wrong("a function without a name");
  if (!has_code) return json->Wrong("no instructions of '" + function->name + "'");
  if (function->start_bytes < 0) return json->Wrong("a negative start of '" + function->name + "'");
  return Status::Ok();
}

Status ReadTarget(JsonCursor* json, int* target) {
  int major = 0, minor = 0;
  KVANT_RETURN_IF_ERROR(json->ForEachMember([&](std::string_view name) {
    if (name != "version") return json->SkipValue();
    return json->ForEachMember([&](std::string_view part) {
      if (part == "major") return json->Number(&major);
      if (part == "minor") return json->Number(&minor);
      return json->SkipValue();
    });
  }));
  if (major < 1 || major > 1000 || minor < 0 || minor > 9) return json->Wrong("no SM version");
  *target = 10 * major + minor;
  return Status::Ok();
}

Status ReadHeader(JsonCursor* json, SassListing* listing) {
  KVANT_RETURN_IF_ERROR(json->ForEachMember([&](std::string_view name) {
    if (name == "SM") return ReadTarget(json, &listing->target);
    return json->SkipValue();
  }));
  return listing->target == 0 ? json->Wrong("no SM version") : Status::Ok();
}

}  // namespace

bool SassInstruction::Has(std::string_view modifier) const {
  std::string_view rest = opcode;
  for (size_t point; (point = rest.find('.')) != rest.npos;) {
    rest = rest.substr(point + 1);
    if (rest.substr(0, rest.find('.')) == modifier) return true;
  }
  return false;
}

Result<SassListing> ParseSass(std::string_view text) {
  JsonCursor json(text, "disassembly");
  SassListing listing;
  KVANT_RETURN_IF_ERROR(json.Expect('['));
  KVANT_RETURN_IF_ERROR(ReadHeader(&json, &listing));
  KVANT_RETURN_IF_ERROR(json.Expect(','));
  KVANT_RETURN_IF_ERROR(
      json.ForEachElement([&] { return ReadFunction(&json, &listing.functions.emplace_back()); }));
  KVANT_RETURN_IF_ERROR(json.Expect(']'));
  KVANT_RETURN_IF_ERROR(json.ExpectEnd());
  return listing;
}

}  // namespace kvant
