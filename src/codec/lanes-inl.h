// Lanes of a side in the compilers' own vector extension, which becomes what a level has, and how
// their codes reach the planes. Included before the encoders' -inl.h files inside an anonymous
// namespace, behind kTileLanes: as many lanes as the level has in a register, 16 at most. g++ 12
// compares wider vectors lane by lane: 16 lanes took nine times as long on AVX2 as 8.

constexpr int kMaxRows = 1024;  // head_dim of K
using Floats = float __attribute__((vector_size(4 * kTileLanes)));
using Ints = int32_t __attribute__((vector_size(4 * kTileLanes)));
using Bits = uint32_t __attribute__((vector_size(4 * kTileLanes)));
using Bytes = uint8_t __attribute__((vector_size(kTileLanes)));

// -1 in lanes first .. end - 1.
Ints LanesFrom(int first, int end) {
  Ints mask;
  for (int l = 0; l < kTileLanes; ++l) mask[l] = l >= first && l < end ? -1 : 0;
  return mask;
}

// x where the mask is set, 0 elsewhere, whatever x is.
inline Floats Masked(const Floats& x, const Ints& mask) {
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(x) & mask);
}

void StoreHalf(std::byte* at, uint16_t half) { __builtin_memcpy(at, &half, sizeof half); }

// Where the lanes from `lane` on lie in unit `unit` of a plane; page_layout.h has the picture.
std::byte* UnitAt(const SideShape& shape, const PlanePlan& plane, std::byte* codes, int lane,
                  int unit) {
  const int first = lane / 64 * 64, left = shape.lanes - first;
  const int chunk_blocks = (left < 64 ? left : 64) / 16;
  return codes + plane.offset_bytes + first / 16 * plane.lane_block_bytes +
         (unit * chunk_blocks + (lane - first) / 16) * 64 + lane % 16 * 4;
}

// Each unit takes the plane's bits of as many consecutive quads as fit.
//   quads: codes of the lanes from `lane` on, a byte a row
template <int kPlaneBits>
void StorePlane(const SideShape& shape, const PlanePlan& plane, const Bits* quads, int lane,
                std::byte* codes) {
  constexpr int kQuads = 8 / kPlaneBits;
  constexpr uint32_t kMask = ((1u << kPlaneBits) - 1) * 0x01010101u;
  const int count = shape.steps * 4;
  for (int first = 0; first < count; first += kQuads) {
    Bits unit{};
    for (int i = 0; i < kQuads && first + i < count; ++i) {
      unit |= (quads[first + i] >> plane.first_bit & kMask) << (i * kPlaneBits);
    }
    __builtin_memcpy(UnitAt(shape, plane, codes, lane, first / kQuads), &unit, sizeof unit);
  }
}

void StorePlanes(const SideShape& shape, const Bits* quads, int lane, std::byte* codes) {
  for (const PlanePlan& plane : shape.planes) {
    if (plane.bits == 4) StorePlane<4>(shape, plane, quads, lane, codes);
    if (plane.bits == 2) StorePlane<2>(shape, plane, quads, lane, codes);
    if (plane.bits == 1) StorePlane<1>(shape, plane, quads, lane, codes);
  }
}
