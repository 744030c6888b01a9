// Formats in files: as the spec that FormatSpec prints.
#pragma once

#include "base/byte_cursor.h"
#include "kvant/format.h"
#include "kvant/status.h"

namespace kvant {

// kCorrupt where the file ends too early, or holds what ParseFormat refuses.
Status ReadFormat(Side side, ByteCursor* cursor, Format* format);

}  // namespace kvant
