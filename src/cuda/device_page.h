// DevicePage: how a page lies in GPU memory. The same codes, scales and offsets as in a stored page
// (format/page_layout.h), permuted so that a lane's 16-byte loads bring whole operand fragments of
// the tensor cores' m16n8k16 product; a kernel without tensor cores reads the same bytes.
//
// A page is 64 tokens of one KV head: payload (codes, or halves of f16) and metadata lie in two
// pools, each indexed by the page's number.
//
//   payload   K side, V side. A side is, for each of 32 lanes, a stream of head_dim / 4 fragments
//             of 8 codes. Lane 4 g + t, fragment f:
//               K  rows are tokens, columns channels: token block f / (D / 16), channel tile
//                  f % (D / 16)
//               V  rows are channels, columns tokens: channel tile f / 4, token block f % 4
//             each tile 16 wide. A fragment is 4 pairs: (row g; columns 2t, 2t + 1), (row g + 8;
//             the same), (row g; columns 2t + 8, 2t + 9), (row g + 8; the same). The streams are
//             cut into 16-byte vectors and lie [vector][32 lanes][16 B]; where a stream ends in
//             half a vector (int2 of head_dim 80), [32 lanes][8 B] follow.
//   metadata  K's, then V's, by the kind of the side's codes:
//               f16   none
//               int   K scales [D] f16, offsets [D]; V scales [D / 64, rounded up][64] f16, then
//                     offsets, the same; channels (K) and tokens (V) in the order of PairOrder, in
//                     which a lane's own make up whole loads. A value is scale * code + offset.
//               e4m3  scales [64] f16, one a token: K's in TokenOrder, V's in PairOrder. A value is
//                     scale * half, the half 2^-8 times the float, the scale 2^8 times the stored
//                     one: sums of halves stay far from their ends.
//               tq4   the same, the half 2^-7 times the code's level, times a factor that all pages
//                     of the table share
//
// Inside words the codes of int are set for the magic-number decode, which makes two halves
// 1024 + f * c of a word with one and-or, f the weight of the bit where the code begins:
//   f16   word p: pair p
//   int8  word 0: pairs 0, 1; word 1: pairs 2, 3; a byte a code, in order; e4m3: the same
//   int4  pair p: nibbles p and p + 4; f = 1, 16, 1, 16
//   tq4   pair p: byte p, the first code in the low nibble
//   int2  a word holds two fragments, in its even and its odd bytes; fields (of 2 bits) of pairs
//         0, 1, 2, 3: 0, 2, 1, 3; f = 1, 16, 4, 64
// So f of the rows g + 8 is 16 times that of the rows g (int4, int2): the product's rows stay
// comparable after one multiplication.
#pragma once

namespace kvant::cuda {

inline constexpr int kDevicePageTokens = 64;
inline constexpr int kVGroupChannels = 64;  // int: V has one scale a token and 64 channels
inline constexpr int kTokenBlocks = kDevicePageTokens / 16;

// What the codes of one side are.
enum class SideCode { kF16, kInt8, kInt4, kInt2, kE4M3, kLevels4 };
constexpr int BitsOf(SideCode code) {
  switch (code) {
    case SideCode::kF16:
      return 16;
    case SideCode::kInt4:
    case SideCode::kLevels4:
      return 4;
    case SideCode::kInt2:
      return 2;
    default:
      return 8;
  }
}
// One scale a token and no offset.
constexpr bool IsByToken(SideCode code) {
  return code == SideCode::kE4M3 || code == SideCode::kLevels4;
}
// Scales and offsets, of K by channel, of V by token and 64 channels.
constexpr bool HasOffsets(SideCode code) { return code != SideCode::kF16 && !IsByToken(code); }

// What the codes of a page are.
struct PageCode {
  SideCode k, v;
  bool operator==(const PageCode&) const = default;
};
inline constexpr PageCode kF16Page = {SideCode::kF16, SideCode::kF16};
inline constexpr PageCode kInt8Page = {SideCode::kInt8, SideCode::kInt8};
inline constexpr PageCode kInt4Page = {SideCode::kInt4, SideCode::kInt4};
inline constexpr PageCode kInt2Page = {SideCode::kInt2, SideCode::kInt2};
inline constexpr PageCode kFp8Page = {SideCode::kE4M3, SideCode::kE4M3};
inline constexpr PageCode kInt8Int4Page = {SideCode::kInt8, SideCode::kInt4};
inline constexpr PageCode kInt4Int2Page = {SideCode::kInt4, SideCode::kInt2};
inline constexpr PageCode kTq4Page = {SideCode::kLevels4, SideCode::kLevels4};

// Bytes of one lane's stream of one side, and of the side.
constexpr int LaneBytes(SideCode code, int head_dim) { return head_dim * BitsOf(code) / 4; }
constexpr int SidePayloadBytes(SideCode code, int head_dim) {
  return 32 * LaneBytes(code, head_dim);
}
constexpr int PagePayloadBytes(PageCode page, int head_dim) {
  return SidePayloadBytes(page.k, head_dim) + SidePayloadBytes(page.v, head_dim);
}

// Metadata: bytes of a side, and where offsets begin in it.
constexpr int VGroups(int head_dim) { return (head_dim + kVGroupChannels - 1) / kVGroupChannels; }
constexpr int KOffsetsByte(int head_dim) { return 2 * head_dim; }
constexpr int VOffsetsByte(int head_dim) { return 2 * kDevicePageTokens * VGroups(head_dim); }
constexpr int TokenScalesBytes(SideCode code) {
  return IsByToken(code) ? 2 * kDevicePageTokens : 0;
}
constexpr int KMetadataBytes(SideCode k, int head_dim) {
  return HasOffsets(k) ? 2 * KOffsetsByte(head_dim) : TokenScalesBytes(k);
}
constexpr int VMetadataBytes(SideCode v, int head_dim) {
  return HasOffsets(v) ? 2 * VOffsetsByte(head_dim) : TokenScalesBytes(v);
}
constexpr int PageMetadataBytes(PageCode page, int head_dim) {
  return KMetadataBytes(page.k, head_dim) + VMetadataBytes(page.v, head_dim);
}

// Which lane holds an element, and where in its stream.
struct Element {
  int lane, fragment, pair, half;
};
constexpr Element ElementAt(bool is_k, int head_dim, int token, int channel) {
  const int row = is_k ? token : channel, column = is_k ? channel : token;
  const int tiles = is_k ? head_dim / 16 : kTokenBlocks;  // along a row
  return {row % 8 * 4 + column % 8 / 2, row / 16 * tiles + column / 16,
          row % 16 / 8 + column % 16 / 8 * 2, column % 2};
}

// Where byte `byte` of a lane's stream lies in its side.
constexpr int StreamPlace(int lane_bytes, int lane, int byte) {
  const int vectors = lane_bytes / 16;
  return byte < vectors * 16 ? (byte / 16 * 32 + lane) * 16 + byte % 16
                             : vectors * 512 + lane * 8 + byte % 16;
}

// A row of `tiles` x 16 scales, offsets or queries: lanes of equal t share 2 * tiles words, two to
// a tile. They lie in vectors, [vector][t][words of a vector], so that the lanes' loads of a vector
// follow each other and together fill whole sectors.
constexpr int VectorWords(int tiles) { return tiles % 2 == 0 ? 4 : 2; }
constexpr int PairWord(int tiles, int t, int word) {
  const int vector = VectorWords(tiles);
  return (word / vector * 4 + t) * vector + word % vector;
}

// Where element `index` of such a row lies, in halves.
constexpr int PairOrder(int tiles, int index) {
  const int tile = index / 16, in_tile = index % 16;
  const int pair = in_tile / 8, t = in_tile % 8 / 2, half = in_tile % 2;
  return PairWord(tiles, t, tile * 2 + pair) * 2 + half;
}

// Where the scale of a token of K lies: a lane's own 8, the rows g and g + 8 of each token block,
// follow each other.
constexpr int TokenOrder(int token) {
  return (token % 8 * kTokenBlocks + token / 16) * 2 + token % 16 / 8;
}

// PairOrder with the inner two of every four words of a lane exchanged: four are then a left
// operand whose rows g belong to an even tile and whose rows g + 8 to the odd one behind it.
constexpr int ExchangedWord(int tiles, int word) {
  const bool inner = word % 4 == 1 || word % 4 == 2;
  return inner && word / 4 * 4 + 4 <= 2 * tiles ? word / 4 * 4 + 3 - word % 4 : word;
}
constexpr int OffsetOrder(int tiles, int index) {
  const int tile = index / 16, in_tile = index % 16;
  const int word = ExchangedWord(tiles, tile * 2 + in_tile / 8);
  return PairWord(tiles, in_tile % 8 / 2, word) * 2 + in_tile % 2;
}

// Where code `half` of pair `pair` of fragment `fragment` begins in a lane's stream, in bits.
constexpr int CodeBit(SideCode code, int fragment, int pair, int half) {
  switch (code) {
    case SideCode::kF16:
      return ((fragment * 4 + pair) * 2 + half) * 16;
    case SideCode::kInt8:
    case SideCode::kE4M3:
      return fragment * 64 + (pair * 2 + half) * 8;
    case SideCode::kInt4:
      return fragment * 32 + (pair + 4 * half) * 4;
    case SideCode::kLevels4:
      return fragment * 32 + pair * 8 + half * 4;
    default: {  // kInt2
      const int field = pair == 1 ? 2 : pair == 2 ? 1 : pair;
      return fragment / 2 * 32 + fragment % 2 * 8 + field * 2 + half * 16;
    }
  }
}

// Where an element begins in its side, in bits.
constexpr int BitOf(bool is_k, SideCode code, int head_dim, int token, int channel) {
  const Element at = ElementAt(is_k, head_dim, token, channel);
  const int bit = CodeBit(code, at.fragment, at.pair, at.half);
  return StreamPlace(LaneBytes(code, head_dim), at.lane, bit / 8) * 8 + bit % 8;
}

}  // namespace kvant::cuda
