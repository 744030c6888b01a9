// How accumulators are tiled. Included by kernel_body-inl.h and latent-inl.h inside an anonymous
// namespace.

// Calls fn(0), fn(1), ... fn(N - 1) with constants. A loop would do, but g++ 12 unrolls some loops
// only after it has put the arrays that they index into memory: an f16 page then takes twice as
// long.
template <int... kIndices, typename Fn>
KVANT_INLINE void UnrollEach(std::integer_sequence<int, kIndices...>, const Fn& fn) {
  (fn(std::integral_constant<int, kIndices>{}), ...);
}
template <int N, typename Fn>
KVANT_INLINE void Unroll(const Fn& fn) {
  UnrollEach(std::make_integer_sequence<int, N>{}, fn);
}

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
