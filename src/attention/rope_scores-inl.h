// Scores of keys that pages hold as they were before RoPE. Included by kernel_body-inl.h inside an
// anonymous namespace.
//
// With R(p) the rotation of position p, and t0 that of a block's first token:
//   q . R(t0 + j) k = (R(-t0) q) . (R(j) k)
// A query turns once a block, a decoded key by its place in the block: 64 small angles from a table
// that stays in cache. All in f32; nothing is rounded to 8 bits.

// to = R(-position) q, [padded_dim]; position: of a block.
inline void TurnQuery(const KeyRope& rope, int64_t position, const float* q, int padded_dim,
                      float* to) {
  std::memcpy(to, q, static_cast<size_t>(padded_dim) * sizeof(float));
  const float* const cosines = rope.starts + position / kPageTokens * 2 * rope.count;
  const float* const sines = cosines + rope.count;
  int i = 0;
  for (; rope.step == 1 && i + kLaneBlock <= rope.count; i += kLaneBlock) {
    const F a = Load(q + i), b = Load(q + i + rope.to_partner);
    const F c = Load(cosines + i), s = Load(sines + i);
    Store(to + i, Fma(a, c, Mul(b, s)));
    Store(to + i + rope.to_partner, Sub(Mul(b, c), Mul(a, s)));
  }
  for (; i < rope.count; ++i) {
    const int first = rope.step * i, second = first + rope.to_partner;
    const float a = q[first], b = q[second];
    to[first] = a * cosines[i] + b * sines[i];
    to[second] = b * cosines[i] - a * sines[i];
  }
}

// Codes of channels c .. c + 15 (a step) of 16 tokens, one vector a channel.
template <int kLow, int kHigh, int kParity>
KVANT_INLINE void StepCodes(const uint8_t* low, const uint8_t* high, std::ptrdiff_t stride,
                            F (&codes)[kStep]) {
  Unroll<4>([&](auto quad) KVANT_INLINE_LAMBDA {
    const B bytes = QuadCodes<kLow, kHigh, kParity, quad()>(low, high, stride);
    Unroll<4>([&](auto e) KVANT_INLINE_LAMBDA {
      codes[4 * quad() + e()] = ToFloat(LaneBytes<e()>(bytes));
    });
  });
}

// s.keys := the keys of a block, [padded_dim][64].
template <int kLow, int kHigh>
inline void DecodeKeys(const SideLayout& side, const BlockRef& ref, SegmentScratch& s) {
  const MetadataReader reader(side);
  const bool by_channel = side.format.axis == Axis::kChannel;
  const int token_group = TokensOfGroup(side);
  const ChunkPlanes planes = PlanesOfChunk<kLow, kHigh>(side, ref.page, ref.block, 0, nullptr);
  const std::ptrdiff_t stride = planes.blocks * kPlaneUnitBytes;
  for (int lane = 0; lane < kPageTokens; lane += kLaneBlock) {
    const uint8_t* low = planes.low + lane / kLaneBlock * kPlaneUnitBytes;
    const uint8_t* high = planes.high + lane / kLaneBlock * kPlaneUnitBytes;
    if (by_channel && lane % token_group == 0) {
      const int64_t group = (ref.block * kPageTokens + lane) / side.group;
      reader.ReadAll(ref.page + group * side.padded_dim * 2, side.padded_dim, s);
    }
    for (int c = 0; c < side.padded_dim; c += kStep) {
      F codes[kStep], scale = Zero(), centred = Zero();
      const bool odd = c / kStep % 2 == 1;
      odd ? StepCodes<kLow, kHigh, 1>(low, high, stride, codes)
          : StepCodes<kLow, kHigh, 0>(low, high, stride, codes);
      low += kLow / 2 * stride;
      if (kHigh == 2 || (kHigh == 1 && odd)) high += stride;
      if (!by_channel) {
        const int own = c / side.group, last = side.channel_groups - 1;
        const int group = own < last ? own : last;
        reader.Read(ref.page + int64_t{ref.block} * side.block_metadata_bytes +
                        group * kPageTokens * side.scale_bytes,
                    lane / kLaneBlock, scale, centred);
      }
      Unroll<kStep>([&](auto i) KVANT_INLINE_LAMBDA {
        if (by_channel) {
          scale = Set(s.scale[c + i()]);
          centred = Set(s.centred[c + i()]);
        }
        Store(s.keys + (c + i()) * kPageTokens + lane,
              Fma(scale, Sub(codes[i()], reader.centre), centred));
      });
    }
  }
}

// Scores of block `index`: the keys in s.keys turned, times the queries in s.product.
inline void ScoreTurnedKeys(const KeyRope& rope, int head_dim, int index, int rows,
                            SegmentScratch& s) {
  ForTiles(kChunkBlocks, rows, [&](auto nb, auto nr, int block, int row) {
    constexpr int NB = nb(), NR = nr();
    const float* const keys = s.keys + block * kLaneBlock;
    F acc[NR][NB];
    Unroll<NR * NB>([&](auto i) KVANT_INLINE_LAMBDA { acc[i() / NB][i() % NB] = Zero(); });
    const auto add = [&](int channel, const F(&k)[NB]) KVANT_INLINE_LAMBDA {
      Unroll<NR>([&](auto r) KVANT_INLINE_LAMBDA {
        const F q = Set(s.product[row + r()][channel]);
        Unroll<NB>([&](auto b)
                       KVANT_INLINE_LAMBDA { acc[r()][b()] = Fma(k[b()], q, acc[r()][b()]); });
      });
    };
    for (int i = 0; i < rope.count; ++i) {
      const int first = rope.step * i, second = first + rope.to_partner;
      const float* const turn = rope.offsets + i * 2 * kPageTokens + block * kLaneBlock;
      F a[NB], b[NB];
      Unroll<NB>([&](auto n) KVANT_INLINE_LAMBDA {
        const int at = n() * kLaneBlock;
        const F x = Load(keys + first * kPageTokens + at);
        const F y = Load(keys + second * kPageTokens + at);
        const F c = Load(turn + at), sine = Load(turn + kPageTokens + at);
        a[n()] = Sub(Mul(x, c), Mul(y, sine));
        b[n()] = Fma(x, sine, Mul(y, c));
      });
      add(first, a);
      add(second, b);
    }
    for (int c = 2 * rope.count; c < head_dim; ++c) {
      F k[NB];
      Unroll<NB>([&](auto n) KVANT_INLINE_LAMBDA {
        k[n()] = Load(keys + c * kPageTokens + n() * kLaneBlock);
      });
      add(c, k);
    }
    Unroll<NR * NB>([&](auto i) KVANT_INLINE_LAMBDA {
      const int token = (block + i() % NB) * kLaneBlock;
      Store(s.scores[row + i() / NB] + index * kPageTokens + token, acc[i() / NB][i() % NB]);
    });
  });
}

template <int kLow, int kHigh>
inline void ScorePreRopeSegment(const Segment& segment, const SegmentRows& rows, Stream& stream,
                                SegmentScratch& s) {
  const SideLayout& side = segment.layout->k;
  const int lines = stream.BurstLines(segment.num_blocks,
                                      stream.all_lines() - segment.num_blocks * side.bytes / 64);
  for (int i = 0; i < segment.num_blocks; ++i) {
    stream.Burst(lines);
    for (int r = 0; r < rows.rows; ++r) {
      TurnQuery(*segment.rope, segment.first_position + i * kPageTokens, rows.q[r], side.padded_dim,
                s.product[r]);
    }
    DecodeKeys<kLow, kHigh>(side, segment.blocks[i], s);
    ForEachOutlier(side, segment.blocks[i].page, segment.blocks[i].block,
                   [&](int token, int channel, float delta) {
                     s.keys[channel * kPageTokens + token] += delta;
                   });
    ScoreTurnedKeys(*segment.rope, side.head_dim, i, rows.rows, s);
  }
}
