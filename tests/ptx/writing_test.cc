// Kernels that write pages or move them, and the naive ones: their PTX against the shim, bit by
// bit.
#include <gtest/gtest.h>

#include "codec/test_pages.h"
#include "ptx/ptx_decode.h"

namespace kvant::ptx {
namespace {

// Runs a kernel whose only parameter is `args`; its fault, or nothing.
template <typename Arguments>
std::string FaultOf(const std::string& file, const std::string& name, const Arguments& args,
                    DeviceMemory* memory, uint32_t blocks) {
  const Result<Counts> run =
      RunPtx(PtxOf(file), name, args, memory, {.grid = {blocks}, .block = {cuda::kBlockThreads}});
  return run.ok() ? "" : run.status().message();
}

// Halves of -4 .. 4, as bytes.
std::vector<unsigned char> RandomHalves(int bytes) {
  std::vector<unsigned char> payload(static_cast<size_t>(bytes));
  for (size_t i = 0; i < payload.size() / 2; ++i) {
    const uint16_t half = F32ToF16(8 * MixUnit(i) - 4);
    std::memcpy(payload.data() + 2 * i, &half, sizeof half);
  }
  return payload;
}

// Of a page whose codes are levels.
DeviceLevels LevelsOf(cuda::PageCode page) {
  if (page.k != cuda::SideCode::kLevels4) return {};
  return DeviceLevelsOf(MakeSideLayout(simt::DeviceFormat(Side::kK, page.k), Side::kK, 64, 64));
}

TEST(PtxEncode, GivesTheShimsPages) {
  KVANT_SKIP_WITHOUT_PTX();
  for (const simt::EncodeKernel& kernel : simt::kEncodeKernels) {
    const auto f16 = RandomHalves(cuda::PagePayloadBytes(cuda::kF16Page, kernel.head_dim));
    const auto payload_bytes =
        static_cast<size_t>(cuda::PagePayloadBytes(kernel.page, kernel.head_dim));
    const auto metadata_bytes =
        static_cast<size_t>(cuda::PageMetadataBytes(kernel.page, kernel.head_dim));
    std::vector<unsigned char> shim_payload(payload_bytes), shim_metadata(metadata_bytes);
    std::vector<unsigned char> payload(payload_bytes), metadata(metadata_bytes);
    const std::vector<uint32_t> page = {0};
    const std::vector<int32_t> first_token = {5};
    const DeviceLevels levels = LevelsOf(kernel.page);
    const std::vector<uint16_t> halves(levels.halves.begin(), levels.halves.end());
    const cuda::EncodeArguments shim_args{f16.data(),  shim_payload.data(), shim_metadata.data(),
                                          page.data(), page.data(),         first_token.data(),
                                          0,           halves.data(),       levels.sigma};
    ASSERT_EQ(simt::Launch({}, [&] { kernel.thread(shim_args); }), "");
    DeviceMemory memory;
    const cuda::EncodeArguments args{Input<const unsigned char>(&memory, "f16_payload", f16),
                                     Output(&memory, "payload", &payload),
                                     Output(&memory, "metadata", &metadata),
                                     Input<const uint32_t>(&memory, "from_pages", page),
                                     Input<const uint32_t>(&memory, "to_pages", page),
                                     Input<const int32_t>(&memory, "first_tokens", first_token),
                                     0,
                                     Input<const uint16_t>(&memory, "levels", halves),
                                     levels.sigma};
    ASSERT_EQ(FaultOf("encode", kernel.name, args, &memory, 1), "") << kernel.name;
    EXPECT_EQ(payload, shim_payload) << kernel.name;
    EXPECT_EQ(metadata, shim_metadata) << kernel.name;
  }
}

TEST(PtxAppend, GivesTheShimsPage) {
  KVANT_SKIP_WITHOUT_PTX();
  constexpr int kDim = 128;
  std::vector<float> k(kDim), v(kDim);
  for (size_t i = 0; i < kDim; ++i) k[i] = MixUnit(i), v[i] = -MixUnit(i + kDim);
  std::vector<unsigned char> shim_payload(cuda::PagePayloadBytes(cuda::kF16Page, kDim), 0xee);
  std::vector<unsigned char> payload = shim_payload;
  const std::vector<uint32_t> pages = {0};
  const std::vector<int32_t> slots = {37};
  const cuda::AppendArguments shim_args{
      shim_payload.data(), pages.data(), slots.data(), k.data(), v.data(), kDim};
  ASSERT_EQ(simt::Launch({}, [&] { kvant_append(shim_args); }), "");
  DeviceMemory memory;
  const cuda::AppendArguments args{
      InOut(&memory, "payload", &payload),           Input<const uint32_t>(&memory, "pages", pages),
      Input<const int32_t>(&memory, "slots", slots), Input<const float>(&memory, "k", k),
      Input<const float>(&memory, "v", v),           kDim};
  ASSERT_EQ(FaultOf("encode", "kvant_append", args, &memory, 1), "");
  EXPECT_EQ(payload, shim_payload);
}

TEST(PtxFreePages, AreTheShims) {
  KVANT_SKIP_WITHOUT_PTX();
  struct Lists {
    std::vector<uint32_t> free_pages{0, 1, 2, 3, 4, 5, 6, 7}, pages = std::vector<uint32_t>(12, 99);
    std::vector<int32_t> state{5, 8, 0}, counts{2, 0, 3, 1};
  } shim, ptx;
  const cuda::FreeListArguments shim_args{
      shim.free_pages.data(), shim.state.data(), shim.counts.data(), shim.pages.data(), 8, 4, 3};
  ASSERT_EQ(simt::Launch({}, [&] { kvant_take_pages(shim_args); }), "");
  DeviceMemory memory;
  const cuda::FreeListArguments args{InOut(&memory, "free_pages", &ptx.free_pages),
                                     InOut(&memory, "state", &ptx.state),
                                     Input<const int32_t>(&memory, "counts", ptx.counts),
                                     InOut(&memory, "pages", &ptx.pages),
                                     8,
                                     4,
                                     3};
  ASSERT_EQ(FaultOf("free_list", "kvant_take_pages", args, &memory, 1), "");
  EXPECT_EQ(ptx.pages, shim.pages);
  EXPECT_EQ(ptx.state, shim.state);
  ASSERT_EQ(simt::Launch({}, [&] { kvant_give_pages(shim_args); }), "");
  ASSERT_EQ(FaultOf("free_list", "kvant_give_pages", args, &memory, 1), "");
  EXPECT_EQ(ptx.free_pages, shim.free_pages);
  EXPECT_EQ(ptx.state, shim.state);
}

TEST(PtxNaive, ScoresAreTheShims) {
  KVANT_SKIP_WITHOUT_PTX();
  constexpr int kPages = 5;
  constexpr int kDim = 128;
  std::vector<unsigned char> payload(kPages * cuda::PagePayloadBytes(cuda::kInt4Page, kDim));
  for (size_t i = 0; i < payload.size(); ++i) {
    payload[i] = static_cast<unsigned char>(256 * MixUnit(i));
  }
  const auto metadata = RandomHalves(kPages * cuda::PageMetadataBytes(cuda::kInt4Page, kDim));
  std::vector<float> query(kDim);
  for (size_t i = 0; i < kDim; ++i) query[i] = MixUnit(i + 7);
  std::vector<float> shim_scores(kPages * 64), scores(kPages * 64);
  std::vector<uint32_t> scratch(cuda::kBlockWarps * 64 * kDim / 2);
  const std::pair<const char*, void (*)(cuda::ScoreArguments)> kernels[] = {
      {"kvant_naive_scores_int4_d128", kvant_naive_scores_int4_d128},
      {"kvant_scratch_scores_int4_d128", kvant_scratch_scores_int4_d128}};
  for (const auto& [name, thread] : kernels) {
    const cuda::ScoreArguments shim_args{payload.data(),     metadata.data(), query.data(),
                                         shim_scores.data(), scratch.data(),  kPages};
    ASSERT_EQ(simt::Launch({}, [&, run = thread] { run(shim_args); }), "");
    DeviceMemory memory;
    const cuda::ScoreArguments args{Input<const unsigned char>(&memory, "payload", payload),
                                    Input<const unsigned char>(&memory, "metadata", metadata),
                                    Input<const float>(&memory, "query", query),
                                    Output(&memory, "scores", &scores),
                                    Output(&memory, "scratch", &scratch),
                                    kPages};
    ASSERT_EQ(FaultOf("naive", name, args, &memory, 1), "") << name;
    EXPECT_EQ(scores, shim_scores) << name;
  }
}

}  // namespace
}  // namespace kvant::ptx
