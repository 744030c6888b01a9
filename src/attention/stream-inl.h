// What memory is asked for while a segment is computed: the pages of the segment that the thread
// reads next. Included by kernel_body-inl.h inside an anonymous namespace.

// Walks the next segment's pages in the order of memory, a few lines at every step of the kernels,
// into L2. Measured on a Zen 4 core, int4, cycles a page from memory (980 in cache): asked for in
// the order of use (K halves, then V halves) into L1 2,300; in the order of memory into L1 2,300,
// into L2 1,500. The hardware follows a straight stream of L2 requests and runs ahead of it;
// requests into L1 hold one of the core's 24 miss buffers each until memory has answered. Spread
// evenly, since a burst fills the queues and stops the loads of the running segment.
class Stream {
 public:
  static constexpr int kLineBytes = 64;

  explicit Stream(const Segment& segment) {
    const Segment* next = segment.next;
    if (next == nullptr || next->num_blocks == 0) {
      at_ = segment.blocks[0].page;
      return;
    }
    next_ = next;
    page_bytes_ = next->layout->page_bytes;
    end_ = at_ = next->blocks[0].page;
    end_ += page_bytes_;
    lines_left_ = all_lines_ = static_cast<int>(CountPages() * (page_bytes_ / kLineBytes));
  }

  // The lines of one call of a kernel's step, kept in registers by its loop: it does not look where
  // a page ends and runs on into what follows, which mostly is the next page.
  class Lines {
   public:
    Lines(const std::byte* at, int stride) : at_(at), stride_(stride) {}
    template <int kCount>
    KVANT_INLINE void Ask() {
      for (int i = 0; i < kCount; ++i) Prefetch(at_ + i * kLineBytes);
      at_ += kCount * stride_;
    }

   private:
    const std::byte* at_;
    std::ptrdiff_t stride_;  // 0: nothing to ask for
  };
  Lines Take(int lines) {
    if (lines_left_ <= 0) return {at_, 0};
    const Lines taken(at_, kLineBytes);
    Skip(lines);
    return taken;
  }
  // Asks for `lines` at once.
  void Burst(int lines) {
    if (lines_left_ <= 0) return;
    for (int i = 0; i < lines; ++i) Prefetch(at_ + i * kLineBytes);
    Skip(lines);
  }
  // Lines for each of `calls` bursts that together leave `others` for what comes after them.
  int BurstLines(int calls, int others) const {
    const int lines = lines_left_ - others;
    return lines <= 0 ? 0 : (lines + calls - 1) / calls;
  }
  int all_lines() const { return all_lines_; }
  void Finish() {
    while (lines_left_ > 0) {
      const auto to_page_end = static_cast<int>((end_ - at_) / kLineBytes);
      Burst(lines_left_ < to_page_end ? lines_left_ : to_page_end);
    }
  }

 private:
  // Blocks of one page follow each other.
  int64_t CountPages() const {
    int64_t pages = 1;
    for (int i = 1; i < next_->num_blocks; ++i) {
      pages += next_->blocks[i].page != next_->blocks[i - 1].page;
    }
    return pages;
  }
  void Skip(int lines) {
    lines_left_ -= lines;
    at_ += lines * kLineBytes;
    while (lines_left_ > 0 && at_ >= end_) {
      const std::ptrdiff_t beyond = at_ - end_;
      const std::byte* page = next_->blocks[block_].page;
      while (block_ + 1 < next_->num_blocks && next_->blocks[block_].page == page) ++block_;
      at_ = next_->blocks[block_].page + beyond;
      end_ = next_->blocks[block_].page + page_bytes_;
    }
  }

  const Segment* next_ = nullptr;
  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;  // of the page
  int block_ = 0;                   // of the next segment, whose page at_ is in
  int64_t page_bytes_ = 0;
  int all_lines_ = 0, lines_left_ = 0;
};
