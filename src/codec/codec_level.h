// What one ISA level provides of the codecs.
#pragma once

#include "codec/normed_plan.h"
#include "codec/side_plan.h"
#include "codec/small_float_plan.h"

namespace kvant {

struct CodecLevel {
  EncodeCodedFn encode = nullptr;  // null: the reference does it
  DecodeCodedFn decode = nullptr;
  EncodeNormedFn encode_normed = nullptr;           // every level has one
  EncodeSmallFloatFn encode_small_float = nullptr;  // null: the reference does it
};
const CodecLevel& ActiveCodecLevel();

}  // namespace kvant
