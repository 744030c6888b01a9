// The encoder of normed sides, included once by every level inside an anonymous namespace. The
// level defines LoadLanes behind it.
// Vectors in the compilers' own extension, which becomes what a level has; sums in a
// fixed order. No call to an inline function of another header (see codec_avx512.cc).

constexpr int kMaxStates = 16;

// kTileLanes values of an open side.
void LoadLanes(const NormedPlan& plan, const std::byte* from, Floats& to);

// What a block keeps between its tiles.
struct Block {
  float mean[kMaxRows];       // as stored, 0 where the format has none
  float length[kPageTokens];  // |r| of each token
  float norm[kPageTokens];
};

// A sum over many lanes, in the order of 16 of them whatever a tile has.
class LaneSum {
 public:
  void Add(int lane, const Floats& x) {
    Floats& part = parts_[lane / kTileLanes % kParts];
    part = part + x;
  }
  float ByHalves() const {
    float lanes[16];
    __builtin_memcpy(lanes, parts_, sizeof lanes);
    for (int half = 8; half >= 1; half /= 2) {
      for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
    }
    return lanes[0];
  }

 private:
  static constexpr int kParts = 16 / kTileLanes;
  Floats parts_[kParts] = {};
};

const std::byte* RowAt(const NormedPlan& plan, const std::byte* block, int row, int lane) {
  const int value_bytes = plan.source_type == FloatType::kF32 ? 4 : 2;
  return block + (static_cast<int64_t>(row) * plan.lanes + lane) * value_bytes;
}

// Values of a row in the lanes of a mask, 0 elsewhere.
inline Floats LoadRow(const NormedPlan& plan, const std::byte* block, int row, int lane,
                      const Ints& mask) {
  Floats x;
  LoadLanes(plan, RowAt(plan, block, row, lane), x);
  return Masked(x, mask);
}

#include "codec/normed_levels-inl.h"

// ---- page mean

// Means of all channels over tokens [first, 64), rounded to 8 bits of their largest.
void TakeMean(const NormedPlan& plan, const std::byte* source, int first, int8_t* codes,
              std::byte* step_at, Block& block) {
  const float count = static_cast<float>(plan.block_tokens - first);
  float largest = 0;
  for (int c = 0; c < plan.rows; ++c) {
    LaneSum sum;
    for (int lane = 0; lane < plan.lanes; lane += kTileLanes) {
      sum.Add(lane, LoadRow(plan, source, c, lane, LanesFrom(first - lane, kTileLanes)));
    }
    const float mean = count > 0 ? sum.ByHalves() / count : 0.0f;
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

// ---- norms

// |z|: what lengths are brought to before vectors are coded.
float UnitOf(const NormedPlan& plan) {
  return plan.table.sigma * __builtin_sqrtf(static_cast<float>(plan.head_dim));
}

// K: makes the decoded vector as long as r. squares: of its levels.
float KeyNorm(const NormedPlan& plan, float length, int32_t squares) {
  return length > 0 && squares > 0
             ? length * plan.table.sigma / __builtin_sqrtf(static_cast<float>(squares))
             : 0.0f;
}

// V: gives the decoded vector the product |r|^2 with r. products: of z with its levels.
float ValueNorm(const NormedPlan& plan, float length, float products) {
  return products > 0 ? length * (plan.table.sigma * UnitOf(plan)) / products : 0.0f;
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
void LoadKeyTile(const NormedPlan& plan, const std::byte* source, int lane, const Ints& seen,
                 Block& block, Tile& tile) {
  Floats squares{};
  for (int c = 0; c < plan.rows; ++c) {
    Floats x;
    LoadLanes(plan, RowAt(plan, source, c, lane), x);
    const Floats r = Masked(x - block.mean[c], seen);
    tile.z[c] = r;
    squares = squares + r * r;
  }
  const float unit = UnitOf(plan);
  Floats factor{};
  for (int l = 0; l < kTileLanes; ++l) {
    const float length = __builtin_sqrtf(squares[l]);
    block.length[lane + l] = length;
    factor[l] = length > 0 ? unit / length : 0.0f;
  }
  for (int c = 0; c < plan.rows; ++c) tile.z[c] = tile.z[c] * factor;
}

void EncodeKeys(const NormedPlan& plan, const std::byte* source, int first, Block& block,
                Tile& tile, std::byte* codes) {
  for (int lane = 0; lane < plan.lanes; lane += kTileLanes) {
    const Ints seen = LanesFrom(first - lane, kTileLanes);
    ClearTile(plan, kTileLanes, 0, tile);
    LoadKeyTile(plan, source, lane, seen, block, tile);
    CodeTile(plan, tile);
    for (int l = 0; l < kTileLanes; ++l) {
      block.norm[lane + l] = KeyNorm(plan, block.length[lane + l], tile.lane_squares[l]);
    }
    for (int q = 0; q < plan.steps * 4; ++q) tile.quads[q] &= reinterpret_cast<Bits>(seen);
    StorePlanes(plan, tile.quads, lane, codes);
  }
}

void EncodeValues(const NormedPlan& plan, const std::byte* source, int first, Block& block,
                  Tile& tile, std::byte* codes) {
  const float unit = UnitOf(plan);
  float factor[kPageTokens];
  LaneSum products[kPageTokens];
  for (int t = 0; t < plan.rows; ++t) {
    LaneSum sum;
    for (int lane = 0; lane < plan.lanes; lane += kTileLanes) {
      const Floats x = LoadRow(plan, source, t, lane, LanesFrom(0, plan.used_lanes - lane));
      sum.Add(lane, x * x);
    }
    block.length[t] = t < first ? 0.0f : __builtin_sqrtf(sum.ByHalves());
    factor[t] = block.length[t] > 0 ? unit / block.length[t] : 0.0f;
  }
  for (int lane = 0; lane < plan.lanes; lane += kTileLanes) {
    ClearTile(plan, plan.used_lanes - lane, first, tile);
    for (int t = first; t < plan.rows; ++t) {
      tile.z[t] = LoadRow(plan, source, t, lane, tile.used) * factor[t];
    }
    CodeTile(plan, tile);
    for (int t = first; t < plan.rows; ++t) products[t].Add(lane, tile.row_products[t]);
    StorePlanes(plan, tile.quads, lane, codes);
  }
  for (int t = 0; t < plan.rows; ++t) {
    block.norm[t] = ValueNorm(plan, block.length[t], products[t].ByHalves());
  }
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
