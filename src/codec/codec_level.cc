#include "codec/codec_level.h"

#include "kvant/isa.h"

namespace kvant {
namespace {

constexpr CodecLevel kScalarLevel = {nullptr, nullptr, EncodeNormedScalar, nullptr};
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
constexpr CodecLevel kAvx2Level = {EncodeCodedAvx2, DecodeCodedAvx2, EncodeNormedAvx2,
                                   EncodeSmallFloatAvx2};
constexpr CodecLevel kAvx512Level = {EncodeCodedAvx512, DecodeCodedAvx512, EncodeNormedAvx512,
                                     EncodeSmallFloatAvx512};
#elif defined(__aarch64__) && !defined(KVANT_SCALAR_ONLY)
constexpr CodecLevel kNeonLevel = {EncodeCodedNeon, DecodeCodedNeon, EncodeNormedNeon,
                                   EncodeSmallFloatNeon};
#endif

}  // namespace

const CodecLevel& ActiveCodecLevel() {
  switch (ActiveIsa()) {
#if defined(__x86_64__) && !defined(KVANT_SCALAR_ONLY)
    case Isa::kAvx2:
    case Isa::kAvxVnni:
      return kAvx2Level;
    case Isa::kAvx512:
      return kAvx512Level;
#elif defined(__aarch64__) && !defined(KVANT_SCALAR_ONLY)
    case Isa::kNeon:
      return kNeonLevel;
#endif
    default:  // scalar, and the levels of other processors
      return kScalarLevel;
  }
}

}  // namespace kvant
