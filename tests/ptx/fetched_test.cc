// Bytes fetched against bytes used: sectors of 32 bytes that the requests of a kernel touch.
// Counts, so they may be asserted; the table that docs/ptx.md prints is this test's output.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>

#include "cuda/device_page.h"
#include "ptx/ptx_decode.h"

namespace kvant::ptx {
namespace {

constexpr int kTokens = 1024;
constexpr double kMostFetched = 1.03;  // bytes for each byte used

Traffic LoadsOf(const Counts& counts, const std::vector<std::string>& names) {
  Traffic sum;
  for (const AllocationTraffic& allocation : counts.allocations) {
    const bool is_wanted = std::find(names.begin(), names.end(), allocation.name) != names.end();
    if (is_wanted) sum += allocation.loads;
  }
  return sum;
}

void Print(const std::string& kernel, const Traffic& traffic) {
  std::printf("%-36s %8llu bytes used, fetched %.3f a byte used, %.3f by single requests\n",
              kernel.c_str(), static_cast<unsigned long long>(traffic.bytes),
              traffic.fetched_per_byte(), traffic.fetched_per_request_byte());
}

// What is read does not depend on what it holds, so the pages are zeros.
Counts DecodeCounts(const cuda::KernelRow& row) {
  constexpr int kPages = kTokens / cuda::kDevicePageTokens;
  std::vector<std::byte> payload(
      static_cast<size_t>(kPages * cuda::PagePayloadBytes(row.page, row.head_dim)));
  std::vector<std::byte> metadata(
      static_cast<size_t>(kPages * cuda::PageMetadataBytes(row.page, row.head_dim)));
  std::vector<uint32_t> table(kPages);
  std::iota(table.rbegin(), table.rend(), 0u);
  const std::vector<cuda::TokenRange> ranges = {{0, kTokens}};
  const std::vector<float> queries(static_cast<size_t>(row.heads * row.head_dim), 1.0f);
  const DecodeInputs in{.heads = row.heads,
                        .head_dim = row.head_dim,
                        .pages = kPages,
                        .payload = payload,
                        .metadata = metadata,
                        .table = table,
                        .ranges = ranges,
                        .queries = queries};
  const PtxDecoded outputs = DecodeByPtx(PtxOf(FileOfKernel(row.name)), row.name, in);
  EXPECT_EQ(outputs.fault, "");
  return outputs.counts;
}

void ExpectNothingWasted(const cuda::KernelRow& row) {
  const Counts counts = DecodeCounts(row);
  const Traffic pools = LoadsOf(counts, {"payload", "metadata"});
  const Traffic payload = LoadsOf(counts, {"payload"});
  Print(row.name, pools);
  constexpr int kPages = kTokens / cuda::kDevicePageTokens;
  const auto page_bytes = static_cast<uint64_t>(cuda::PagePayloadBytes(row.page, row.head_dim) +
                                                cuda::PageMetadataBytes(row.page, row.head_dim));
  EXPECT_EQ(pools.bytes, kPages * page_bytes) << "every byte is used";
  EXPECT_EQ(payload.request_bytes, payload.bytes) << "and no code is asked for twice";
  EXPECT_EQ(payload.fetched_per_request_byte(), 1.0) << "nor by part of a sector";
  EXPECT_LE(pools.fetched_per_byte(), kMostFetched);
  EXPECT_LE(pools.fetched_per_request_byte(), kMostFetched) << "were nothing kept between requests";
}

// By file: one parse serves all kernels of a format.
class PtxFetched : public testing::TestWithParam<std::string> {};

TEST_P(PtxFetched, PoolsFetchWhatTheyUse) {
  KVANT_SKIP_WITHOUT_PTX();
  for (const cuda::KernelRow& row : cuda::kDecodeKernels) {
    SCOPED_TRACE(row.name);
    if (FileOfKernel(row.name) == GetParam()) ExpectNothingWasted(row);
  }
}
INSTANTIATE_TEST_SUITE_P(Ptx, PtxFetched, testing::ValuesIn(DecodeFiles()), NameOfFile);

// Counter-examples.
//

constexpr int kDim = 128;

std::vector<float> CountingQueries() {
  std::vector<float> queries(kDim);
  for (size_t i = 0; i < kDim; ++i) queries[i] = static_cast<float>(i % 7) - 3.0f;
  return queries;
}

// Codes are centred; sums of small integers are exact in f32, in any order.
float Dot(const std::vector<int>& codes, int bits, const std::vector<float>& queries) {
  float sum = 0;
  for (size_t i = 0; i < kDim; ++i) {
    sum += static_cast<float>(codes[i] - (1 << (bits - 1))) * queries[i];
  }
  return sum;
}

void AppendRow(const std::vector<int>& codes, int bits, std::vector<uint32_t>* words) {
  const auto per_word = static_cast<size_t>(32 / bits);
  for (size_t i = 0; i < kDim; ++i) {
    if (i % per_word == 0) words->push_back(0);
    words->back() |= static_cast<uint32_t>(codes[i]) << (i % per_word * static_cast<size_t>(bits));
  }
}

std::vector<int> RandomCodes(int bits, std::mt19937* random) {
  std::vector<int> codes(kDim);
  for (int& code : codes) code = static_cast<int>((*random)() % (1u << bits));
  return codes;
}

template <typename Arguments>
Counts RunCounterExample(const std::string& name, const Arguments& args, DeviceMemory* memory) {
  const Result<Counts> counts =
      RunPtx(PtxOf("counter_examples"), name, args, memory, {.block = {128}});
  EXPECT_TRUE(counts.ok()) << counts.status().message();
  return counts.ok() ? *counts : Counts{};
}

// A row of 68 or 36 bytes begins anywhere in a sector: a request of n bytes touches (n + 28) / 32
// sectors on average, 3 and 2 here, so 96 / 68 and 64 / 36 bytes a byte used.
TEST(PtxFetchedByOthers, InlineMixedRows) {
  KVANT_SKIP_WITHOUT_PTX();
  std::mt19937 random(1);
  const std::vector<float> queries = CountingQueries();
  std::vector<uint32_t> rows, row_words;
  std::vector<uint8_t> bits;
  std::vector<float> expected, scores(kTokens);
  for (int t = 0; t < kTokens; ++t) {
    const int width = random() % 2 == 0 ? 4 : 2;
    const std::vector<int> codes = RandomCodes(width, &random);
    row_words.push_back(static_cast<uint32_t>(rows.size()));
    bits.push_back(static_cast<uint8_t>(width));
    rows.push_back(std::bit_cast<uint32_t>(0.5f));
    AppendRow(codes, width, &rows);
    expected.push_back(Dot(codes, width, queries) * 0.5f);
  }
  DeviceMemory memory;
  const struct {
    const uint32_t *rows, *row_words;
    const uint8_t* bits;
    const float* queries;
    float* scores;
    int tokens;
  } args{Input<const uint32_t>(&memory, "rows", rows),
         Input<const uint32_t>(&memory, "row_words", row_words),
         Input<const uint8_t>(&memory, "bits", bits),
         Input<const float>(&memory, "queries", queries),
         Output(&memory, "scores", &scores),
         kTokens};
  const Counts counts = RunCounterExample("kvant_inline_mixed_scores_d128", args, &memory);
  EXPECT_EQ(scores, expected);
  const Traffic traffic = LoadsOf(counts, {"rows", "row_words", "bits"});
  Print("inline mixed int4/int2 rows", traffic);
  EXPECT_GT(traffic.fetched_per_request_byte(), 1.4);
  EXPECT_LE(traffic.fetched_per_byte(), kMostFetched) << "a cache that keeps all would hide it";
}

// One token in eight is left: their rows of two sectors are fetched whole, their scales with those
// of evicted neighbours: 1 - (7/8)^8 of the sectors of 8 scales, 21 bytes a token instead of 4.
// With 4 bytes of `kept` that is 89 / 72, and no cache helps.
TEST(PtxFetchedByOthers, GatherAmongEvictedTokens) {
  KVANT_SKIP_WITHOUT_PTX();
  constexpr size_t kSlots = 8 * kTokens;
  std::mt19937 random(2);
  const std::vector<float> queries = CountingQueries();
  std::vector<uint32_t> codes;
  std::vector<float> scales(kSlots, 0.25f), all_scores, expected, scores(kTokens);
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const std::vector<int> row = RandomCodes(4, &random);
    AppendRow(row, 4, &codes);
    all_scores.push_back(Dot(row, 4, queries) * 0.25f);
  }
  std::vector<uint32_t> slots(kSlots), kept;
  std::iota(slots.begin(), slots.end(), 0u);
  std::sample(slots.begin(), slots.end(), std::back_inserter(kept), kTokens, random);
  for (const uint32_t slot : kept) expected.push_back(all_scores[slot]);
  DeviceMemory memory;
  const struct {
    const uint32_t* codes;
    const float* scales;
    const uint32_t* kept;
    const float* queries;
    float* scores;
    int tokens;
  } args{Input<const uint32_t>(&memory, "codes", codes),
         Input<const float>(&memory, "scales", scales),
         Input<const uint32_t>(&memory, "kept", kept),
         Input<const float>(&memory, "queries", queries),
         Output(&memory, "scores", &scores),
         kTokens};
  const Counts counts = RunCounterExample("kvant_evicted_gather_scores_d128", args, &memory);
  EXPECT_EQ(scores, expected);
  const Traffic traffic = LoadsOf(counts, {"codes", "scales", "kept"});
  Print("gather of int4 rows, 1 in 8 kept", traffic);
  EXPECT_GT(traffic.fetched_per_byte(), 1.2);
}

}  // namespace
}  // namespace kvant::ptx
