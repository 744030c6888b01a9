// The encoder of normed sides, included once by every level inside an anonymous namespace, after
//   void LoadLanes(const NormedPlan&, const std::byte*, float*)    16 values of an open side
// Plain loops over 16 lanes in a fixed order, which each compiler turns into its level's vectors;
// no call to an inline function of another header (see codec_avx512.cc).

constexpr int kTileLanes = 16;
constexpr int kMaxRows = 1024;  // head_dim of K
constexpr int kMaxStates = 16;

// 16 lanes of a block while they are coded.
struct Tile {
  alignas(64) float z[kMaxRows][kTileLanes];             // in units of the levels
  alignas(64) uint32_t quads[kMaxRows / 4][kTileLanes];  // codes, a byte a row
  alignas(64) uint8_t choices[kMaxRows][kMaxStates][kTileLanes];
  // Sums of squared levels, of each lane and of each row over the lanes in use.
  alignas(64) int32_t lane_squares[kTileLanes];
  int32_t row_squares[kMaxRows];
  int used_lanes;          // of the tile
  int first_row, end_row;  // rows that count
};

// What a block keeps between its tiles.
struct Block {
  alignas(64) float mean[kMaxRows];       // as stored, 0 where the format has none
  alignas(64) float length[kPageTokens];  // |r| of each token
  alignas(64) float norm[kPageTokens];
};

float SumByHalves(float (&lanes)[kTileLanes]) {
  for (int half = kTileLanes / 2; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  }
  return lanes[0];
}

const std::byte* RowAt(const NormedPlan& plan, const std::byte* block, int row, int lane) {
  const int value_bytes = plan.source_type == FloatType::kF32 ? 4 : 2;
  return block + (static_cast<int64_t>(row) * plan.lanes + lane) * value_bytes;
}

void StoreHalf(std::byte* at, uint16_t half) { __builtin_memcpy(at, &half, sizeof half); }

// ---- page mean

// Means of all channels over tokens [first, 64), rounded to 8 bits of their largest.
void TakeMean(const NormedPlan& plan, const std::byte* source, int first, int8_t* codes,
              std::byte* step_at, Block& block) {
  const float count = static_cast<float>(plan.block_tokens - first);
  float largest = 0;
  for (int c = 0; c < plan.rows; ++c) {
    alignas(64) float sum[kTileLanes] = {};
    for (int lane = 0; lane < plan.lanes; lane += kTileLanes) {
      alignas(64) float x[kTileLanes];
      LoadLanes(plan, RowAt(plan, source, c, lane), x);
      for (int l = 0; l < kTileLanes; ++l) sum[l] = sum[l] + (lane + l < first ? 0.0f : x[l]);
    }
    const float mean = count > 0 ? SumByHalves(sum) / count : 0.0f;
    block.mean[c] = mean;
    const float magnitude = __builtin_fabsf(mean);
    largest = magnitude > largest ? magnitude : largest;
  }
  const uint16_t half = StepHalfOf(largest / 127.0f);
  const float step = FloatOfHalf(half);
  StoreHalf(step_at, half);
  for (int c = 0; c < plan.rows; ++c) {
    float code = step > 0 ? __builtin_rintf(block.mean[c] / step) : 0.0f;
    code = code > 127.0f ? 127.0f : code < -127.0f ? -127.0f : code;
    codes[c] = static_cast<int8_t>(code);
    block.mean[c] = code * step;
  }
}

// ---- levels

void ClearTile(const NormedPlan& plan, int used_lanes, int first_row, Tile& tile) {
  const int rows = plan.steps * 16;
  __builtin_memset(tile.quads, 0, static_cast<size_t>(rows / 4) * sizeof tile.quads[0]);
  __builtin_memset(tile.lane_squares, 0, sizeof tile.lane_squares);
  __builtin_memset(tile.row_squares, 0, static_cast<size_t>(rows) * sizeof tile.row_squares[0]);
  tile.used_lanes = used_lanes;
  tile.first_row = first_row;
  tile.end_row = plan.rows;
}

// Books the codes and levels of one row. squares: of the levels.
void BookRow(int row, const int32_t (&code)[kTileLanes], const int32_t (&squares)[kTileLanes],
             Tile& tile) {
  int32_t sum = 0;
  for (int l = 0; l < kTileLanes; ++l) {
    const bool used = l < tile.used_lanes;
    tile.quads[row / 4][l] |= static_cast<uint32_t>(used ? code[l] : 0) << row % 4 * 8;
    tile.lane_squares[l] += squares[l];
    sum += used ? squares[l] : 0;
  }
  tile.row_squares[row] = sum;
}

void NearestLevels(const NormedPlan& plan, Tile& tile) {
  const int levels = 1 << plan.table.bits;
  float middle[16];
  int32_t square[16];
  for (int i = 0; i < levels; ++i) {
    square[i] = plan.table.levels[i] * plan.table.levels[i];
    if (i > 0)
      middle[i] = 0.5f * static_cast<float>(plan.table.levels[i - 1] + plan.table.levels[i]);
  }
  for (int row = tile.first_row; row < tile.end_row; ++row) {
    alignas(64) int32_t code[kTileLanes] = {}, squares[kTileLanes];
    for (int i = 1; i < levels; ++i) {
      for (int l = 0; l < kTileLanes; ++l) code[l] += middle[i] < tile.z[row][l] ? 1 : 0;
    }
    for (int l = 0; l < kTileLanes; ++l) squares[l] = square[code[l]];
    BookRow(row, code, squares, tile);
  }
}

// Row of the n-th element of a chain.
int RowOfChain(int steps, int n) {
  const int in_byte = n % (4 * steps);
  return in_byte / 4 * 16 + in_byte % 4 * 4 + n / (4 * steps);
}

// Reads the best path of every lane off the choices, from the first element on.
template <int kBits, int kWindow>
void FollowPaths(const NormedPlan& plan, const float (*cost)[kTileLanes], Tile& tile) {
  constexpr int kStateBits = kWindow - kBits, kStates = 1 << kStateBits;
  int32_t square[1 << kWindow];
  for (int w = 0; w < 1 << kWindow; ++w) square[w] = plan.table.levels[w] * plan.table.levels[w];
  alignas(64) int32_t state[kTileLanes] = {};
  for (int l = 0; l < kTileLanes; ++l) {
    float least = cost[0][l];
    for (int s = 1; s < kStates; ++s) {
      const bool less = cost[s][l] < least;
      state[l] = less ? s : state[l];
      least = less ? cost[s][l] : least;
    }
  }
  for (int n = 0; n < plan.steps * 16; ++n) {
    const int row = RowOfChain(plan.steps, n);
    const bool counts = row >= tile.first_row && row < tile.end_row;
    alignas(64) int32_t code[kTileLanes], squares[kTileLanes], choice[kTileLanes] = {};
    for (int s = 0; s < kStates; ++s) {
      for (int l = 0; l < kTileLanes; ++l) {
        choice[l] = state[l] == s ? tile.choices[n][s][l] : choice[l];
      }
    }
    for (int l = 0; l < kTileLanes; ++l) {
      const int32_t window = state[l] | choice[l] << kStateBits;
      code[l] = window & ((1 << kBits) - 1);
      squares[l] = counts ? square[window] : 0;
      state[l] = window >> kBits;
    }
    BookRow(row, code, squares, tile);
  }
}

// Viterbi from the last element to the first. A state is what an element asks of the ones after it:
// the low window - bits bits of its successor's window. Rows that do not count cost nothing.
template <int kBits, int kWindow>
void BestPaths(const NormedPlan& plan, Tile& tile) {
  constexpr int kStateBits = kWindow - kBits, kStates = 1 << kStateBits, kBranches = 1 << kBits;
  const int rows = plan.steps * 16;
  const int8_t* levels = plan.table.levels;
  alignas(64) float cost[kStates][kTileLanes];
  for (int s = 0; s < kStates; ++s) {
    for (int l = 0; l < kTileLanes; ++l) cost[s][l] = s == 0 ? 0.0f : 1e30f;
  }
  for (int n = rows - 1; n >= 0; --n) {
    const int row = RowOfChain(plan.steps, n);
    const float weight = row >= tile.first_row && row < tile.end_row ? 1.0f : 0.0f;
    alignas(64) float twice[kTileLanes], best[kStates][kTileLanes];
    for (int l = 0; l < kTileLanes; ++l) twice[l] = weight == 0.0f ? 0.0f : 2.0f * tile.z[row][l];
    for (int s = 0; s < kStates; ++s) {
      alignas(64) int32_t choice[kTileLanes] = {};
      for (int b = 0; b < kBranches; ++b) {
        const int window = s | b << kStateBits;
        const float level = levels[window], square = weight * level * level;
        const float* const after = cost[window >> kBits];
        for (int l = 0; l < kTileLanes; ++l) {
          const float all = after[l] + (square - twice[l] * level);
          const bool better = b == 0 || all < best[s][l];
          best[s][l] = better ? all : best[s][l];
          choice[l] = better ? b : choice[l];
        }
      }
      for (int l = 0; l < kTileLanes; ++l) {
        tile.choices[n][s][l] = static_cast<uint8_t>(choice[l]);
      }
    }
    __builtin_memcpy(cost, best, sizeof cost);
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
      return NearestLevels(plan, tile);
  }
}

// ---- codes into planes

// Unit `unit` of a plane, for the lane block of `lane`; page_layout.h has the picture.
std::byte* UnitAt(const NormedPlan& plan, const PlanePlan& plane, std::byte* codes, int lane,
                  int unit) {
  const int first = lane / 64 * 64, left = plan.lanes - first;
  const int chunk_blocks = (left < 64 ? left : 64) / kTileLanes;
  return codes + plane.offset_bytes + first / kTileLanes * plane.lane_block_bytes +
         (unit * chunk_blocks + (lane - first) / kTileLanes) * 64;
}

void StoreUnit(std::byte* at, const uint32_t (&unit)[kTileLanes]) {
  __builtin_memcpy(at, unit, sizeof unit);
}

// `quads` consecutive quads of codes, `bits` of each, into every unit.
template <int kPlaneBits>
void StorePlane(const NormedPlan& plan, const PlanePlan& plane, const Tile& tile, int lane,
                std::byte* codes) {
  constexpr int kQuads = 8 / kPlaneBits;
  constexpr uint32_t kMask = ((1u << kPlaneBits) - 1) * 0x01010101u;
  const int quads = plan.steps * 4;
  for (int first = 0; first < quads; first += kQuads) {
    alignas(64) uint32_t unit[kTileLanes] = {};
    for (int i = 0; i < kQuads && first + i < quads; ++i) {
      for (int l = 0; l < kTileLanes; ++l) {
        unit[l] |= (tile.quads[first + i][l] >> plane.first_bit & kMask) << i * kPlaneBits;
      }
    }
    StoreUnit(UnitAt(plan, plane, codes, lane, first / kQuads), unit);
  }
}

void StoreTile(const NormedPlan& plan, const Tile& tile, int lane, std::byte* codes) {
  for (const PlanePlan& plane : plan.planes) {
    if (plane.bits == 4) StorePlane<4>(plan, plane, tile, lane, codes);
    if (plane.bits == 2) StorePlane<2>(plan, plane, tile, lane, codes);
    if (plane.bits == 1) StorePlane<1>(plan, plane, tile, lane, codes);
  }
}

// ---- norms

float NormOf(const NormedPlan& plan, float length, int32_t squares) {
  return length > 0 && squares > 0
             ? length * plan.table.sigma / __builtin_sqrtf(static_cast<float>(squares))
             : 0.0f;
}

// Stores the norms of tokens [first, 64); those before it are 0.
void StoreNorms(const NormedPlan& plan, const Block& block, int first, std::byte* norms,
                std::byte* parameters) {
  const int tokens = plan.block_tokens;
  if (!plan.norms_8bit) {
    for (int t = first; t < tokens; ++t) StoreHalf(norms + 2 * t, HalfOf(block.norm[t]));
    return;
  }
  float least = first < tokens ? block.norm[first] : 0.0f, largest = least;
  for (int t = first; t < tokens; ++t) {
    least = block.norm[t] < least ? block.norm[t] : least;
    largest = block.norm[t] > largest ? block.norm[t] : largest;
  }
  const uint16_t least_half = HalfOf(least);
  const float base = FloatOfHalf(least_half);
  const uint16_t step_half = StepHalfOf(largest > base ? (largest - base) / 255.0f : 0.0f);
  const float step = FloatOfHalf(step_half);
  StoreHalf(parameters, least_half);
  StoreHalf(parameters + 2, step_half);
  for (int t = first; t < tokens; ++t) {
    float code = step > 0 ? __builtin_rintf((block.norm[t] - base) / step) : 0.0f;
    code = code < 0.0f ? 0.0f : code > 255.0f ? 255.0f : code;
    norms[t] = static_cast<std::byte>(static_cast<int>(code));
  }
}

// ---- sides

// Turns a tile of rows into units of the levels. K: lanes are tokens; their lengths come with it.
void LoadKeyTile(const NormedPlan& plan, const std::byte* source, int lane, int first, Block& block,
                 Tile& tile) {
  alignas(64) float squares[kTileLanes] = {}, factor[kTileLanes];
  for (int c = 0; c < plan.rows; ++c) {
    alignas(64) float x[kTileLanes];
    LoadLanes(plan, RowAt(plan, source, c, lane), x);
    const float mean = block.mean[c];
    for (int l = 0; l < kTileLanes; ++l) {
      const float r = lane + l < first ? 0.0f : x[l] - mean;
      tile.z[c][l] = r;
      squares[l] = squares[l] + r * r;
    }
  }
  const float unit = plan.table.sigma * __builtin_sqrtf(static_cast<float>(plan.head_dim));
  for (int l = 0; l < kTileLanes; ++l) {
    const float length = __builtin_sqrtf(squares[l]);
    block.length[lane + l] = length;
    factor[l] = length > 0 ? unit / length : 0.0f;
  }
  for (int c = 0; c < plan.rows; ++c) {
    for (int l = 0; l < kTileLanes; ++l) tile.z[c][l] = tile.z[c][l] * factor[l];
  }
}

void EncodeKeys(const NormedPlan& plan, const std::byte* source, int first, Block& block,
                Tile& tile, std::byte* codes) {
  for (int lane = 0; lane < plan.lanes; lane += kTileLanes) {
    ClearTile(plan, kTileLanes, 0, tile);
    LoadKeyTile(plan, source, lane, first, block, tile);
    CodeTile(plan, tile);
    for (int l = 0; l < kTileLanes; ++l) {
      block.norm[lane + l] = NormOf(plan, block.length[lane + l], tile.lane_squares[l]);
      if (lane + l >= first) continue;
      for (int q = 0; q < plan.steps * 4; ++q) tile.quads[q][l] = 0;
    }
    StoreTile(plan, tile, lane, codes);
  }
}

void EncodeValues(const NormedPlan& plan, const std::byte* source, int first, Block& block,
                  Tile& tile, std::byte* codes) {
  const float unit = plan.table.sigma * __builtin_sqrtf(static_cast<float>(plan.head_dim));
  float factor[kPageTokens];
  int32_t squares[kPageTokens] = {};
  for (int t = 0; t < plan.rows; ++t) {
    alignas(64) float sum[kTileLanes] = {};
    for (int lane = 0; lane < plan.lanes; lane += kTileLanes) {
      alignas(64) float x[kTileLanes];
      LoadLanes(plan, RowAt(plan, source, t, lane), x);
      for (int l = 0; l < kTileLanes; ++l) {
        sum[l] = sum[l] + (lane + l < plan.used_lanes ? x[l] * x[l] : 0.0f);
      }
    }
    block.length[t] = t < first ? 0.0f : __builtin_sqrtf(SumByHalves(sum));
    factor[t] = block.length[t] > 0 ? unit / block.length[t] : 0.0f;
  }
  for (int lane = 0; lane < plan.lanes; lane += kTileLanes) {
    const int left = plan.used_lanes - lane;
    ClearTile(plan, left < kTileLanes ? left : kTileLanes, first, tile);
    for (int t = first; t < plan.rows; ++t) {
      alignas(64) float x[kTileLanes];
      LoadLanes(plan, RowAt(plan, source, t, lane), x);
      for (int l = 0; l < kTileLanes; ++l) tile.z[t][l] = l < left ? x[l] * factor[t] : 0.0f;
    }
    CodeTile(plan, tile);
    for (int t = first; t < plan.rows; ++t) squares[t] += tile.row_squares[t];
    StoreTile(plan, tile, lane, codes);
  }
  for (int t = 0; t < plan.rows; ++t) block.norm[t] = NormOf(plan, block.length[t], squares[t]);
}

void EncodeNormed(const NormedPlan& plan, const std::byte* source, int first_token,
                  std::byte* stored) {
  Block block;
  Tile tile;
  for (int b = 0; b < plan.blocks; ++b, source += plan.source_block_bytes) {
    const int before = first_token - b * plan.block_tokens;
    const int first = before < 0 ? 0 : before < plan.block_tokens ? before : plan.block_tokens;
    std::byte* parameters = stored + plan.parameters_offset + b * plan.parameter_count * 2;
    std::byte* codes = stored + plan.codes_offset + b * plan.block_bytes;
    __builtin_memset(block.mean, 0, sizeof(float) * static_cast<size_t>(plan.padded_dim));
    if (plan.page_mean) {
      auto* mean = reinterpret_cast<int8_t*>(stored + plan.mean_offset + b * plan.padded_dim);
      TakeMean(plan, source, first, mean, parameters, block);
      parameters += 2;
    }
    plan.lanes_are_tokens ? EncodeKeys(plan, source, first, block, tile, codes)
                          : EncodeValues(plan, source, first, block, tile, codes);
    const int norm_bytes = plan.norms_8bit ? 1 : 2;
    StoreNorms(plan, block, first, stored + plan.norms_offset + b * plan.block_tokens * norm_bytes,
               parameters);
  }
}
