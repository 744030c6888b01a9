// How accumulators are tiled. Included by kernel_body-inl.h inside an anonymous namespace.

// Accumulators live in registers only if everything around them is inlined; g++ 12 gives up on the
// larger tiles by itself (int3 ran at half speed).
#define KVANT_INLINE inline __attribute__((always_inline))
#define KVANT_INLINE_LAMBDA __attribute__((always_inline))

// Calls fn(NB, NR, block, row) with constants NB x NR that tile `blocks` x `rows` accumulators.
template <typename Fn>
inline void ForTileRows(auto nb, int block, int rows, const Fn& fn) {
  int row = 0;
  if constexpr (kTileRows >= 4) {
    for (; rows - row >= 4; row += 4) fn(nb, std::integral_constant<int, 4>{}, block, row);
    if (rows - row == 3) {
      fn(nb, std::integral_constant<int, 3>{}, block, row);
      return;
    }
  }
  if constexpr (kTileRows >= 2) {
    for (; rows - row >= 2; row += 2) fn(nb, std::integral_constant<int, 2>{}, block, row);
  }
  for (; row < rows; ++row) fn(nb, std::integral_constant<int, 1>{}, block, row);
}
template <typename Fn>
inline void ForTiles(int blocks, int rows, const Fn& fn) {
  int block = 0;
  if constexpr (kTileBlocks >= 4) {
    for (; blocks - block >= 4; block += 4) {
      ForTileRows(std::integral_constant<int, 4>{}, block, rows, fn);
    }
  }
  if constexpr (kTileBlocks >= 2) {
    for (; blocks - block >= 2; block += 2) {
      ForTileRows(std::integral_constant<int, 2>{}, block, rows, fn);
    }
  }
  for (; block < blocks; ++block) {
    ForTileRows(std::integral_constant<int, 1>{}, block, rows, fn);
  }
}
