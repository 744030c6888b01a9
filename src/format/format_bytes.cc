#include "format/format_bytes.h"

#include <string_view>

namespace kvant {

Status ReadFormat(Side side, ByteCursor* cursor, Format* format) {
  constexpr uint64_t kMaxSpecBytes = 256;
  std::string_view spec;
  KVANT_RETURN_IF_ERROR(cursor->ReadString("a format", kMaxSpecBytes, &spec));
  const Result<Format> parsed = ParseFormat(spec, side);
  if (!parsed.ok()) return Status::Corrupt(parsed.status().message());
  *format = *parsed;
  return Status::Ok();
}

}  // namespace kvant
