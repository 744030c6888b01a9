// What to ask memory for, and when. Included by kernel_body-inl.h inside an anonymous namespace.

// Asks for bytes ahead of their use: every line, straight into L1.
inline void PrefetchBytes(const std::byte* at, int bytes) {
  for (int i = 0; i < bytes; i += 64) Prefetch(at + i);
}

// Metadata of a block is a few lines and is needed all at once: it is asked for in a burst. Codes
// are asked for one line at a time, while the line at the same place of an earlier block is used: a
// burst of them fills the miss buffers and stops the core until memory has answered.
inline void PrefetchMetadata(const SideLayout& side, const std::byte* base, int block) {
  if (side.block_metadata_bytes != 0) {
    PrefetchBytes(base + static_cast<int64_t>(block) * side.block_metadata_bytes,
                  side.block_metadata_bytes);
  } else if (block == 0) {
    PrefetchBytes(base, side.metadata_bytes);
  }
}
inline const std::byte* CodesOf(const SideLayout& side, const std::byte* base, int block) {
  return base + side.metadata_bytes + static_cast<int64_t>(block) * side.block_bytes;
}
// Blocks from a prefetch to its use: about 200 ns of work.
inline int BlocksAhead(const SideLayout& side) { return side.block_bytes >= 4096 ? 1 : 2; }

inline const std::byte* KCodes(const Segment& segment, int i) {
  return CodesOf(segment.layout->k, segment.blocks[i].page, segment.blocks[i].block);
}
inline const std::byte* VCodes(const Segment& segment, int i) {
  return CodesOf(segment.layout->v, segment.blocks[i].page + segment.layout->v_offset_bytes,
                 segment.blocks[i].block);
}
// What to prefetch while block i of K is read: K of a later block, or V of the first ones.
inline const std::byte* AfterK(const Segment& segment, int i) {
  const int ahead = i + BlocksAhead(segment.layout->k), blocks = segment.num_blocks;
  if (ahead < blocks) return KCodes(segment, ahead);
  return VCodes(segment, ahead - blocks < blocks ? ahead - blocks : blocks - 1);
}
// While block i of V is read: V of a later block, or K of the next segment.
inline const std::byte* AfterV(const Segment& segment, int i) {
  const int ahead = i + BlocksAhead(segment.layout->v), blocks = segment.num_blocks;
  if (ahead < blocks) return VCodes(segment, ahead);
  const Segment* next = segment.next;
  if (next == nullptr || ahead - blocks >= next->num_blocks) return VCodes(segment, i);
  return KCodes(*next, ahead - blocks);
}
inline void PrefetchVMetadata(const Segment& segment, int i) {
  const BlockRef& ref = segment.blocks[i];
  PrefetchMetadata(segment.layout->v, ref.page + segment.layout->v_offset_bytes, ref.block);
}
inline void PrefetchNextKMetadata(const Segment& segment, int i) {
  const Segment* next = segment.next;
  if (next == nullptr || i >= next->num_blocks) return;
  PrefetchMetadata(next->layout->k, next->blocks[i].page, next->blocks[i].block);
}
