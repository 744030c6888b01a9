// The side-band of uniform sides: what the codes of outliers lack is added to keys, scores or the
// weighted sum, value by value. Included by kernel_body-inl.h inside an anonymous namespace.

// Calls visit(token of the block, channel, delta) for every slot of a block; slots that nothing
// needs have delta 0.
template <typename Visit>
inline void ForEachOutlier(const SideLayout& side, const std::byte* base, int block,
                           const Visit& visit) {
  const bool by_channel = side.format.axis == Axis::kChannel;
  const int first_token = block * kPageTokens;
  const int first_row = by_channel ? first_token / side.group : block;
  const int last_row = by_channel ? (first_token + kPageTokens - 1) / side.group : block;
  for (int row = first_row; row <= last_row; ++row) {
    const int row_token = row * side.group - first_token;  // by_channel: where the group begins
    for (int slot = 0; slot < side.format.outliers; ++slot) {
      const int first = (row * side.format.outliers + slot) * side.band_width;
      const std::byte* const places = base + side.band_offset + first * 2;
      for (int at = 0; at < side.band_width; at += kLaneBlock) {
        alignas(64) float deltas[kLaneBlock];
        Store(deltas, LoadF16(places + side.deltas_from_places + at * 2));
        for (int lane = 0; lane < kLaneBlock; ++lane) {
          uint16_t place;
          std::memcpy(&place, places + (at + lane) * 2, sizeof place);
          const int token = by_channel ? row_token + place : at + lane;
          const int channel = by_channel ? at + lane : place;
          // A group that is longer than a block has places in others.
          if (static_cast<unsigned>(token) >= static_cast<unsigned>(kPageTokens)) continue;
          visit(token, channel, deltas[lane]);
        }
      }
    }
  }
}

inline void AddOutlierScores(const Segment& segment, const SegmentRows& rows, SegmentScratch& s) {
  for (int i = 0; i < segment.num_blocks; ++i) {
    const BlockRef& ref = segment.blocks[i];
    ForEachOutlier(segment.layout->k, ref.page, ref.block,
                   [&](int token, int channel, float delta) {
                     for (int r = 0; r < rows.rows; ++r) {
                       s.scores[r][i * kPageTokens + token] += rows.q[r][channel] * delta;
                     }
                   });
  }
}

// Probabilities stand in s.scores.
inline void AddOutlierValues(const Segment& segment, const SegmentRows& rows,
                             const SegmentScratch& s) {
  for (int i = 0; i < segment.num_blocks; ++i) {
    const BlockRef& ref = segment.blocks[i];
    const std::byte* const base = ref.page + segment.layout->v_offset_bytes;
    ForEachOutlier(segment.layout->v, base, ref.block, [&](int token, int channel, float delta) {
      for (int r = 0; r < rows.rows; ++r) {
        rows.out[r].weighted[channel] += s.scores[r][i * kPageTokens + token] * delta;
      }
    });
  }
}
