// From values in units of the levels to codes: the nearest level, or the best path of a trellis.
// Included by normed_codec-inl.h inside an anonymous namespace.

// The lanes of a tile while they are coded.
struct Tile {
  Floats z[kMaxRows];        // in units of the levels
  Bits quads[kMaxRows / 4];  // codes, a byte a row
  Bytes choices[kMaxRows][kMaxStates];
  Ints lane_squares;              // squared levels of each lane, summed over rows
  Floats row_products[kMaxRows];  // values of each row times their levels
  Ints used;                      // lanes in use: -1
  int first_row, end_row;         // rows that count
};

void ClearTile(const NormedPlan& plan, int used_lanes, int first_row, Tile& tile) {
  const int rows = plan.steps * 16;
  __builtin_memset(tile.quads, 0, static_cast<size_t>(rows / 4) * sizeof tile.quads[0]);
  tile.lane_squares = Ints{};
  tile.used = LanesFrom(0, used_lanes);
  tile.first_row = first_row;
  tile.end_row = plan.rows;
}

inline void BookCodes(int row, const Ints& code, Tile& tile) {
  tile.quads[row / 4] |= reinterpret_cast<Bits>(code & tile.used) << (row % 4 * 8);
}
// Of a row that counts.
inline void BookLevels(int row, const Ints& level, Tile& tile) {
  tile.lane_squares += level * level & tile.used;
  tile.row_products[row] = Masked(tile.z[row] * __builtin_convertvector(level, Floats), tile.used);
}

// Any ascending table.
void NearestOfAll(const NormedPlan& plan, Tile& tile) {
  const int count = 1 << plan.table.bits;
  const int8_t* levels = plan.table.levels;
  for (int row = tile.first_row; row < tile.end_row; ++row) {
    const Floats z = tile.z[row];
    Ints index{}, level = Ints{} + levels[0];
    for (int i = 1; i < count; ++i) {
      const Ints above = z > 0.5f * static_cast<float>(levels[i - 1] + levels[i]);
      index -= above;
      level += above & (levels[i] - levels[i - 1]);
    }
    BookCodes(row, index, tile);
    BookLevels(row, level, tile);
  }
}

// Symmetric tables, as those of Lloyd-Max: the magnitude is searched among the upper half.
void NearestLevels(const NormedPlan& plan, Tile& tile) {
  const int half = 1 << (plan.table.bits - 1);
  const int8_t* levels = plan.table.levels + half;
  for (int row = tile.first_row; row < tile.end_row; ++row) {
    const Floats z = tile.z[row], magnitude = z < 0.0f ? -z : z;
    Ints index{}, level = Ints{} + levels[0];
    for (int i = 1; i < half; ++i) {
      const Ints above = magnitude > 0.5f * static_cast<float>(levels[i - 1] + levels[i]);
      index -= above;
      level += above & (levels[i] - levels[i - 1]);
    }
    BookCodes(row, z < 0.0f ? half - 1 - index : half + index, tile);
    BookLevels(row, z < 0.0f ? -level : level, tile);
  }
}

// Row of the n-th element of a chain.
int RowOfChain(int steps, int n) {
  const int in_byte = n % (4 * steps);
  return in_byte / 4 * 16 + in_byte % 4 * 4 + n / (4 * steps);
}

// Reads the best path of every lane off the choices, from the first element on.
template <int kBits, int kWindow>
void FollowPaths(const NormedPlan& plan, const Floats* cost, Tile& tile) {
  constexpr int kStateBits = kWindow - kBits, kStates = 1 << kStateBits;
  Ints state{};
  Floats least = cost[0];
  for (int s = 1; s < kStates; ++s) {
    const Ints less = cost[s] < least;
    state = less ? Ints{} + s : state;
    least = less ? cost[s] : least;
  }
  for (int n = 0; n < plan.steps * 16; ++n) {
    const int row = RowOfChain(plan.steps, n);
    Ints choice{};
    for (int s = 0; s < kStates; ++s) {
      choice |= (state == s) & __builtin_convertvector(tile.choices[n][s], Ints);
    }
    const Ints window = state | choice << kStateBits;
    state = window >> kBits;
    BookCodes(row, window & ((1 << kBits) - 1), tile);
    if (row < tile.first_row || row >= tile.end_row) continue;
    Ints level{};
    for (int l = 0; l < kTileLanes; ++l) level[l] = plan.table.levels[window[l]];
    BookLevels(row, level, tile);
  }
}

// Viterbi from the last element to the first. A state is what an element asks of the ones after it:
// the low window - bits bits of its successor's window. Rows that do not count cost nothing.
template <int kBits, int kWindow>
void BestPaths(const NormedPlan& plan, Tile& tile) {
  constexpr int kStateBits = kWindow - kBits, kStates = 1 << kStateBits, kBranches = 1 << kBits;
  float level[1 << kWindow];
  for (int w = 0; w < 1 << kWindow; ++w) level[w] = plan.table.levels[w];
  Floats cost[kStates], best[kStates];
  for (int s = 0; s < kStates; ++s) cost[s] = Floats{} + (s == 0 ? 0.0f : 1e30f);
  for (int n = plan.steps * 16 - 1; n >= 0; --n) {
    const int row = RowOfChain(plan.steps, n);
    const bool counts = row >= tile.first_row && row < tile.end_row;
    const Floats twice = counts ? tile.z[row] + tile.z[row] : Floats{};
    const float weight = counts ? 1.0f : 0.0f;
    for (int s = 0; s < kStates; ++s) {
      Floats least;
      Ints choice{};
      for (int b = 0; b < kBranches; ++b) {
        const int window = s | b << kStateBits;
        const float square = weight * level[window] * level[window];
        const Floats all = cost[window >> kBits] + (square - twice * level[window]);
        if (b == 0) {
          least = all;
          continue;
        }
        const Ints less = all < least;
        least = less ? all : least;
        choice = less ? Ints{} + b : choice;
      }
      best[s] = least;
      tile.choices[n][s] = __builtin_convertvector(choice, Bytes);
    }
    for (int s = 0; s < kStates; ++s) cost[s] = best[s];
  }
  FollowPaths<kBits, kWindow>(plan, cost, tile);
}

void CodeTile(const NormedPlan& plan, Tile& tile) {
  switch (plan.table.window_bits * 16 + plan.table.bits) {
    case 4 * 16 + 2:
      return BestPaths<2, 4>(plan, tile);
    case 4 * 16 + 3:
      return BestPaths<3, 4>(plan, tile);
    case 6 * 16 + 2:
      return BestPaths<2, 6>(plan, tile);
    case 6 * 16 + 3:
      return BestPaths<3, 6>(plan, tile);
    case 6 * 16 + 4:
      return BestPaths<4, 6>(plan, tile);
    default:
      return plan.table.symmetric ? NearestLevels(plan, tile) : NearestOfAll(plan, tile);
  }
}
