#include "codec/codec.h"

namespace kvant {

void EncodeSide(const SideLayout& open, const std::byte* source, const SideLayout& layout,
                int first_token, std::byte* stored) {
  EncodeSideReference(open, source, layout, first_token, stored);
}

}  // namespace kvant
