// Kernels that write pages, on the SIMT shim, against the CPU's codec bit for bit.
#include <gtest/gtest.h>

#include <cstring>

#include "simt/decode_world.h"
#include "simt/kernels.h"
#include "simt/simt.h"

namespace kvant::simt {
namespace {

const unsigned char* Bytes(const std::vector<std::byte>& bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* Bytes(std::vector<std::byte>& bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

// The two sides of a page in f16, of values that try the codec: constant groups, tiny ranges whose
// step is subnormal, signed zeros, large ones, and ordinary ones.
struct OpenPage {
  int dim;
  OpenSide k, v;

  explicit OpenPage(int head_dim)
      : dim(head_dim),
        k(Side::kK, head_dim, 64, [](int t, int c) { return Value(c, t, c); }),
        v(Side::kV, head_dim, 64, [](int t, int c) { return Value(t, t + 777, c); }) {}

  static float Value(int group, int t, int c) {
    const float x = 2 * MixUnit(static_cast<uint64_t>(t * 1000 + c)) - 1;
    switch (group % 8) {
      case 0:
        return 1.5f;
      case 1:
        return x * 0x1p-20f;
      case 2:
        return x > 0 ? 0.0f : -0.0f;
      case 3:
        return x * 30000;
      default:
        return x + static_cast<float>(group % 8);
    }
  }
};

// A device page of stored sides.
struct DevicePage {
  std::vector<std::byte> payload, metadata;

  DevicePage(const PageLayout& layout, const std::vector<std::byte>& k,
             const std::vector<std::byte>& v) {
    std::vector<std::byte> stored(static_cast<size_t>(layout.page_bytes));
    std::copy(k.begin(), k.end(), stored.begin());
    std::copy(v.begin(), v.end(), stored.begin() + layout.v_offset_bytes);
    const DevicePageBytes bytes = *DevicePageBytesOf(layout);
    payload.resize(static_cast<size_t>(bytes.payload));
    metadata.resize(static_cast<size_t>(bytes.metadata));
    const Status status = PackDevicePage(layout, stored, payload, metadata);
    EXPECT_TRUE(status.ok()) << status.message();
  }
};

DevicePage F16Page(const OpenPage& open) {
  return {MakePageLayout(kFormatF16, kFormatF16, open.dim, 64), open.k.bytes, open.v.bytes};
}

// Runs `kernel` on an open page; of V by the convention `none` where `symmetric`.
void ExpectTheCodecsBytes(const EncodeKernel& kernel, const OpenPage& open, bool symmetric,
                          int32_t first_token) {
  SCOPED_TRACE(std::string(kernel.name) + (symmetric ? ", symmetric" : "") + ", first token " +
               std::to_string(first_token));
  const Format k = DeviceFormat(Side::kK, kernel.page.k);
  Format v = DeviceFormat(Side::kV, kernel.page.v);
  if (cuda::HasOffsets(kernel.page.v)) {
    v = UniformFormat(v.bits, Axis::kToken, 64, symmetric ? Offset::kNone : Offset::kMin);
  }
  const PageLayout layout = MakePageLayout(k, v, kernel.head_dim, 64);
  const DevicePage f16 = F16Page(open);
  const DevicePage expected(layout, CodeByReference(open.k, k, first_token).bytes,
                            CodeByReference(open.v, v, first_token).bytes);
  std::vector<std::byte> payload(expected.payload.size(), std::byte{0xee});
  std::vector<std::byte> metadata(expected.metadata.size(), std::byte{0xee});
  const DeviceLevels levels = k.is_normed() ? DeviceLevelsOf(layout.k) : DeviceLevels{};
  const uint32_t page = 0;
  const cuda::EncodeArguments args{.f16_payload = Bytes(f16.payload),
                                   .payload = Bytes(payload),
                                   .metadata = Bytes(metadata),
                                   .from_pages = &page,
                                   .to_pages = &page,
                                   .first_tokens = &first_token,
                                   .symmetric_v = symmetric ? 1 : 0,
                                   .levels = levels.halves.data(),
                                   .level_sigma = levels.sigma};
  ASSERT_EQ(Launch({}, [&] { kernel.thread(args); }), "");
  EXPECT_EQ(metadata, expected.metadata);
  EXPECT_EQ(payload, expected.payload);
}

TEST(EncodeKernels, GiveTheBytesOfTheCpuCodec) {
  for (const EncodeKernel& kernel : kEncodeKernels) {
    const OpenPage open(kernel.head_dim);
    for (const bool symmetric : {false, true}) {
      if (symmetric && !cuda::HasOffsets(kernel.page.v)) continue;
      for (const int32_t first_token : {0, 5}) {
        ExpectTheCodecsBytes(kernel, open, symmetric, first_token);
      }
    }
  }
}

// Values that step evenly through all codes, of thirteen sizes.
TEST(EncodeKernels, AgreeWithTheCpuCodecOnDenseValues) {
  for (const EncodeKernel& kernel : kEncodeKernels) {
    if (!cuda::IsByToken(kernel.page.k) || kernel.head_dim != 64) continue;
    OpenPage open(64);
    const auto value = [](int t, int c) {
      return static_cast<float>(c - 31) / 32 * std::exp2(static_cast<float>(t % 13 - 6));
    };
    open.k = OpenSide(Side::kK, 64, 64, value);
    open.v = OpenSide(Side::kV, 64, 64, value);
    ExpectTheCodecsBytes(kernel, open, false, 1);
  }
}

// Two large squares and 126 that are lost when they are added to them in turn, but not when they
// are added to each other first: 2^-18 of the sum, so that of so many tokens some store another
// norm.
TEST(EncodeKernels, AddInTheOrderOfTheCpuCodec) {
  constexpr int kDim = 128, kPages = 10;
  for (const EncodeKernel& kernel : kEncodeKernels) {
    if (kernel.page != cuda::kTq4Page || kernel.head_dim != kDim) continue;
    for (int page = 0; page < kPages; ++page) {
      const auto value = [&](int t, int c) {
        const auto place = static_cast<uint64_t>((page * 64 + t) * 2 + c);
        return c < 2 ? 1 + MixUnit(place) : 0x1p-11f;
      };
      OpenPage open(kDim);
      open.k = OpenSide(Side::kK, kDim, 64, value);
      open.v = OpenSide(Side::kV, kDim, 64, value);
      ExpectTheCodecsBytes(kernel, open, false, 0);
    }
  }
}

TEST(Append, FillsAPageTokenByToken) {
  for (const int dim : {80, 128}) {
    const OpenPage open(dim);
    const DevicePage expected = F16Page(open);
    std::vector<std::byte> payload(2 * expected.payload.size(), std::byte{0xee});
    for (int32_t t = 0; t < 64; ++t) {
      std::vector<float> k, v;
      for (int row = 0; row < 2; ++row) {  // of two rows the second is the page that is looked at
        for (int c = 0; c < dim; ++c) {
          k.push_back(open.k.At(t, c) * static_cast<float>(row));
          v.push_back(open.v.At(t, c) * static_cast<float>(row));
        }
      }
      const uint32_t pages[] = {1, 0};
      const int32_t slots[] = {63 - t, t};
      const cuda::AppendArguments args{Bytes(payload), pages, slots, k.data(), v.data(), dim};
      LaunchOptions options;
      options.grid_x = 2;
      ASSERT_EQ(Launch(options, [&] { kvant_append(args); }), "");
    }
    payload.resize(expected.payload.size());
    EXPECT_EQ(payload, expected.payload) << dim;
  }
}

struct FreeList {
  std::vector<uint32_t> free_pages;
  std::vector<int32_t> state, counts;
  std::vector<uint32_t> pages;
  int stride;

  std::string Move(void (*kernel)(cuda::FreeListArguments)) {
    const cuda::FreeListArguments args{free_pages.data(),
                                       state.data(),
                                       counts.data(),
                                       pages.data(),
                                       static_cast<int32_t>(free_pages.size()),
                                       static_cast<int32_t>(counts.size()),
                                       stride};
    LaunchOptions options;
    options.schedule = Schedule::kRandom;
    return Launch(options, [&] { kernel(args); });
  }
};

constexpr uint32_t kNone = 99;

// The example of the acceptance: capacity 8, start 5, requests 2, 0, 3, 1.
TEST(FreePages, AreTakenByPrefixAndGivenBack) {
  FreeList list{
      {0, 1, 2, 3, 4, 5, 6, 7}, {5, 8, 0}, {2, 0, 3, 1}, std::vector<uint32_t>(12, kNone), 3};
  ASSERT_EQ(list.Move(kvant_take_pages), "");
  EXPECT_EQ(list.pages,
            (std::vector<uint32_t>{5, 6, kNone, kNone, kNone, kNone, 7, 0, 1, 2, kNone, kNone}));
  EXPECT_EQ(list.state, (std::vector<int32_t>{3, 2, 0}));
  list.counts = {1, 0, 2, 0};
  ASSERT_EQ(list.Move(kvant_give_pages), "");
  EXPECT_EQ(list.state, (std::vector<int32_t>{3, 5, 0}));
  EXPECT_EQ(list.free_pages, (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 7, 0}));
}

TEST(FreePages, NothingMovesWhereSomeAreLacking) {
  FreeList list{{0, 1, 2, 3}, {1, 2, 0}, {2, 1}, std::vector<uint32_t>(4, kNone), 2};
  ASSERT_EQ(list.Move(kvant_take_pages), "");
  EXPECT_EQ(list.state, (std::vector<int32_t>{1, 2, 1}));
  EXPECT_EQ(list.pages, std::vector<uint32_t>(4, kNone));
  ASSERT_EQ(list.Move(kvant_give_pages), "");
  EXPECT_EQ(list.state, (std::vector<int32_t>{1, 2, 1}));
  EXPECT_EQ(list.free_pages, (std::vector<uint32_t>{0, 1, 2, 3}));
}

// More rows than threads: the prefix goes on from chunk to chunk.
TEST(FreePages, ServeMoreRowsThanABlockHasThreads) {
  constexpr int kRows = 300;
  FreeList list{{}, {7, 600, 0}, {}, std::vector<uint32_t>(kRows * 3, kNone), 3};
  for (uint32_t i = 0; i < 600; ++i) list.free_pages.push_back(i);
  for (int row = 0; row < kRows; ++row) list.counts.push_back(row % 4 == 0 ? 3 : row % 2);
  ASSERT_EQ(list.Move(kvant_take_pages), "");
  uint32_t next = 7;
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < 3; ++i) {
      const bool own = i < list.counts[static_cast<size_t>(row)];
      ASSERT_EQ(list.pages[static_cast<size_t>(row * 3 + i)], own ? next++ % 600 : kNone) << row;
    }
  }
  EXPECT_EQ(list.state[1], 600 - static_cast<int>(next - 7));
}

// The counter-examples compute the same scores. Naive: D + 8 roundings of floats; scratch: values
// rounded to halves first. 2^-23 and 2^-11, with 2^-25 for subnormal halves.
TEST(NaiveScores, AreThoseOfTheDecodedValues) {
  const DecodeWorld world(cuda::kInt4Page, 128, 1, {{0, 320}, {0, 320}}, 9);
  const int pages = 2 * world.pages;
  for (const bool by_scratch : {false, true}) {
    std::vector<float> scores(static_cast<size_t>(pages * 64), NAN);
    std::vector<uint32_t> scratch(4 * 64 * 64);
    const cuda::ScoreArguments args{Bytes(world.payload), Bytes(world.metadata),
                                    world.queries.data(), scores.data(),
                                    scratch.data(),       pages};
    ASSERT_EQ(Launch({},
                     [&] {
                       if (by_scratch) {
                         kvant_scratch_scores_int4_d128(args);
                       } else {
                         kvant_naive_scores_int4_d128(args);
                       }
                     }),
              "");
    for (int row = 0; row < 2; ++row) {
      for (int t = 0; t < world.pages * 64; ++t) {
        double expected = 0, size = 0;
        for (int c = 0; c < 128; ++c) {
          const double q = static_cast<double>(world.queries[static_cast<size_t>(c)]);
          const Parts& k = world.At(world.k, row, t, c);
          expected += q * k.value;
          size += std::fabs(q) * (k.coded + k.offset);
        }
        const double bound = size * (136 * 0x1p-23 + (by_scratch ? 0x1p-11 : 0)) + 128 * 0x1p-25;
        const size_t page = world.table[static_cast<size_t>(row * world.pages + t / 64)];
        EXPECT_NEAR(scores[page * 64 + static_cast<size_t>(t % 64)], expected, bound) << t;
      }
    }
  }
}

}  // namespace
}  // namespace kvant::simt
