// What attention costs a 64-token block of one KV head on one core: with its pages in the L2 cache,
// and from memory, where the pages lie in runs of so many and every run somewhere else. The
// difference is what memory costs that arithmetic does not hide. Not part of the build:
//   g++ -std=c++20 -O3 -Iinclude -Isrc lab/attention_streaming.cc build/release/src/libkvant.a
//       -pthread -o attention_streaming
//   ./attention_streaming plain4 64 3 8      format, head_dim, group ratio, pages of a run [128]
//
// Chunks of 128 blocks go by the kernel and by a plain read in turns, each some 50 us: a scheduler
// that takes the core away spoils single chunks, not the quartile that is printed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "attention/kernels.h"
#include "base/aligned_buffer.h"
#include "base/huge_pages.h"
#include "codec/codec.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

constexpr size_t kBufferBytes = size_t{192} << 20;  // several times the last-level cache
constexpr size_t kChunkBlocks = 128;
constexpr double kSeconds = 2;

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

uint64_t SumBytes(const std::byte* data, int64_t bytes) {
  uint64_t sums[16] = {};
  for (int64_t at = 0; at + 128 <= bytes; at += 128) {
    uint64_t words[16];
    std::memcpy(words, data + at, sizeof words);
    for (int i = 0; i < 16; ++i) sums[i] += words[i];
  }
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  return total;
}

double Quartile(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 4];
}

// Copies of one page of plausible numbers.
class Pages {
 public:
  Pages(const KvSpec& spec, int head_dim, int run_pages)
      : layout_(MakePageLayout(spec.k, spec.v, head_dim, PageTokensFor(spec.k, spec.v))),
        page_bytes_(static_cast<size_t>(layout_.page_bytes)),
        buffer_(AlignedBuffer::Create(kBufferBytes, kHugePageBytes).value()) {
    AdviseHugePages(buffer_.data(), buffer_.bytes());
    const std::vector<std::byte> page = MakePage(spec, head_dim);
    const size_t run = static_cast<size_t>(run_pages), unit = std::lcm(run, kChunkBlocks);
    const size_t count = kBufferBytes / page_bytes_ / unit * unit;
    for (size_t i = 0; i < count; ++i) {
      pages_.push_back(buffer_.data() + i * page_bytes_);
      std::memcpy(buffer_.data() + i * page_bytes_, page.data(), page_bytes_);
    }
    std::vector<size_t> runs(count / run);
    for (size_t i = 0; i < runs.size(); ++i) runs[i] = i;
    std::shuffle(runs.begin(), runs.end(), std::mt19937(1));
    for (size_t i = 0; i < count; ++i) {
      pages_[i] = buffer_.data() + (runs[i / run] * run + i % run) * page_bytes_;
    }
  }

  int blocks_per_page() const { return layout_.tokens / kPageTokens; }
  size_t page_bytes() const { return page_bytes_; }
  const std::byte* data() { return buffer_.data(); }

  // Segments of a chunk from page `first` on, which begins anew after `wrap` pages.
  std::vector<Segment> Segments(size_t first, size_t wrap) const {
    std::vector<Segment> segments(kChunkBlocks / kSegmentBlocks);
    for (int b = 0; b < static_cast<int>(kChunkBlocks); ++b) {
      Segment& segment = segments[static_cast<size_t>(b / kSegmentBlocks)];
      const size_t page = static_cast<size_t>(b / blocks_per_page()) % wrap;
      segment.layout = &layout_;
      segment.blocks[segment.num_blocks++] = {pages_[first + page], b % blocks_per_page(), 0,
                                              kPageTokens};
    }
    for (size_t i = 0; i + 1 < segments.size(); ++i) segments[i].next = &segments[i + 1];
    return segments;
  }
  size_t chunks() const {
    return pages_.size() * static_cast<size_t>(blocks_per_page()) / kChunkBlocks;
  }

 private:
  std::vector<std::byte> MakePage(const KvSpec& spec, int head_dim) const {
    const FormatPair open_pair = OpenFormats({spec.k, spec.v});
    const PageLayout open = MakePageLayout(open_pair.k, open_pair.v, head_dim, layout_.tokens);
    std::vector<std::byte> written(static_cast<size_t>(open.page_bytes)), page(page_bytes_);
    std::mt19937 random(1);
    for (size_t at = 0; at < written.size(); at += 2) {  // f16 of 0.5 to 1, either sign
      const auto half = static_cast<uint16_t>((random() & 0x83ff) | 0x3800);
      std::memcpy(&written[at], &half, 2);
    }
    if (spec.k.is_float()) return written;
    EncodeSide(open.k, written.data(), layout_.k, 0, page.data());
    EncodeSide(open.v, written.data() + open.v_offset_bytes, layout_.v, 0,
               page.data() + layout_.v_offset_bytes);
    return page;
  }

  PageLayout layout_;
  size_t page_bytes_;
  AlignedBuffer buffer_;
  std::vector<const std::byte*> pages_;
};

// Runs all query heads of a KV head over segments.
class Kernel {
 public:
  Kernel(int head_dim, int group_ratio)
      : rows_(group_ratio),
        padded_dim_(PaddedDim(head_dim)),
        kernels_(AttentionKernelsFor(ActiveIsa())),
        scratch_(AlignedBuffer::Create(sizeof(SegmentScratch)).value()),
        q_(static_cast<size_t>(rows_ * padded_dim_), 0.05f),
        out_(q_.size()) {
    std::memset(scratch_.data(), 0, scratch_.bytes());
  }

  double Seconds(std::vector<Segment>& segments) {
    const double begin = Now();
    for (Segment& segment : segments) {
      for (int first = 0; first < rows_; first += kMaxRows) {
        SegmentRows rows;
        rows.rows = std::min(kMaxRows, rows_ - first);
        for (int r = 0; r < rows.rows; ++r) {
          rows.q[r] = q_.data() + (first + r) * padded_dim_;
          rows.end[r] = kSegmentTokens;
          rows.out[r].weighted = out_.data() + (first + r) * padded_dim_;
        }
        kernels_.segment(segment, rows, *scratch_.as<SegmentScratch>());
      }
    }
    return Now() - begin;
  }

 private:
  int rows_, padded_dim_;
  const AttentionKernels& kernels_;
  AlignedBuffer scratch_;
  std::vector<float> q_, out_;
};

void Measure(const KvSpec& spec, int head_dim, int group_ratio, int run_pages) {
  Pages pages(spec, head_dim, run_pages);
  Kernel kernel(head_dim, group_ratio);
  const size_t chunk_pages = kChunkBlocks / static_cast<size_t>(pages.blocks_per_page());
  const size_t chunk_bytes = chunk_pages * pages.page_bytes();
  std::vector<double> cached, streamed, read;
  std::vector<Segment> near = pages.Segments(0, static_cast<size_t>(8 / pages.blocks_per_page()));
  for (int i = 0; i < 2000; ++i) cached.push_back(kernel.Seconds(near));
  volatile uint64_t sink = 0;
  for (const double end = Now() + kSeconds; Now() < end;) {
    for (size_t chunk = 0; chunk < pages.chunks(); ++chunk) {
      if (chunk % 4 == 0) {
        const double begin = Now();
        sink =
            sink + SumBytes(pages.data() + chunk * chunk_bytes, static_cast<int64_t>(chunk_bytes));
        read.push_back(Now() - begin);
        continue;
      }
      std::vector<Segment> far = pages.Segments(chunk * chunk_pages, chunk_pages);
      const double seconds = kernel.Seconds(far);
      if (chunk % 4 != 1) streamed.push_back(seconds);  // the first after a read comes unasked
    }
  }
  const double bytes = static_cast<double>(chunk_bytes), blocks = kChunkBlocks;
  std::printf("in cache %.0f ns a block; from memory %.0f ns, %.1f GB/s; a plain read %.1f GB/s\n",
              Quartile(cached) / blocks * 1e9, Quartile(streamed) / blocks * 1e9,
              bytes / Quartile(streamed) / 1e9, bytes / Quartile(read) / 1e9);
}

}  // namespace
}  // namespace kvant

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s FORMAT HEAD_DIM GROUP_RATIO [RUN_PAGES]\n", argv[0]);
    return 2;
  }
  const auto spec = kvant::ParseKvPreset(argv[1]);
  if (!spec.ok()) {
    std::fprintf(stderr, "%s\n", spec.status().message().c_str());
    return 2;
  }
  kvant::Measure(*spec, std::atoi(argv[2]), std::atoi(argv[3]),
                 argc > 4 ? std::atoi(argv[4]) : 128);
}
