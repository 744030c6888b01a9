#include "kvant/explain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "format/page_layout.h"

namespace kvant {
namespace {

constexpr KvGeometry kLlama2{32, 32, 128, 32};
constexpr KvGeometry kSmolLm2{30, 3, 64, 9};

KvExplanation Explain(const KvGeometry& geometry, const char* preset, int64_t context,
                      int64_t batch, const char* device = "a100-40gb") {
  return ExplainKv(geometry, *ParseKvPreset(preset), context, batch, *FindDevice(device)).value();
}

TEST(ExplainKv, FourBitPagesOfGroupsOf128MatchTheArithmeticByHand) {
  const KvExplanation e = Explain(kLlama2, "int4:g128", 4096, 1);
  EXPECT_EQ(e.f16.bytes_per_token, 524288);
  EXPECT_EQ(e.f16.bytes, int64_t{2} << 30);
  EXPECT_EQ(e.kv.code_bytes_per_token, 131072);
  EXPECT_EQ(e.kv.metadata_bytes_per_token, 8192);
  EXPECT_EQ(e.kv.padding_bytes_per_token, 0);
  EXPECT_EQ(e.kv.bytes_per_token, 139264);
  EXPECT_EQ(e.kv.bytes, 544 << 20);
  EXPECT_EQ(e.kv.effective_bits, 4.25);
  EXPECT_NEAR(e.ratio, 3.7647, 1e-4);
  EXPECT_NEAR(e.f16.stream_ms, 1.3855, 1e-4);
  EXPECT_NEAR(e.kv.stream_ms, 0.3680, 1e-4);
  EXPECT_EQ(e.bound, "memory bandwidth");
  EXPECT_NEAR(e.compute_ms, 0.00688, 1e-5);
}

// DeepSeek-V2: a latent of 512 channels and a RoPE key of 64 in each of 60 layers, for 128 heads.
// Two sides of 576 channels would cost twice that, keys and values of all heads 56.9 times.
TEST(ExplainKv, ALatentIsCountedOnce) {
  constexpr KvGeometry kDeepSeekV2{60, 1, 576, 128, 512};
  const KvExplanation f16 = Explain(kDeepSeekV2, "f16", 4096, 1);
  EXPECT_EQ(kDeepSeekV2.values_per_token(), 34560);
  EXPECT_EQ(f16.kv.bytes_per_token, 69120);
  EXPECT_EQ(f16.kv.bytes, int64_t{69120} * 4096);
  EXPECT_EQ(f16.ledger.kv_bytes, int64_t{69120} * 4096);
  EXPECT_EQ(f16.ledger.read_bytes, int64_t{69120} * 4096);
  EXPECT_EQ(f16.kv.effective_bits, 16);
  // 2 * 128 * (576 + 512) products and sums a token and layer, on 1,152 bytes.
  EXPECT_EQ(f16.flops, 278528.0 * 60 * 4096);
  EXPECT_NEAR(f16.flops_per_byte, 241.8, 0.05);
  EXPECT_EQ(f16.bound, "matrix arithmetic");
  // An 8-bit code a channel of the latent with a scale for every 128, and the RoPE key in f16.
  const KvExplanation int8 = Explain(kDeepSeekV2, "f16/int8:token:g128:none", 4096, 1);
  EXPECT_EQ(int8.kv.code_bytes_per_token, 60 * (512 + 128));
  EXPECT_EQ(int8.kv.metadata_bytes_per_token, 60 * 4 * 2);
}

TEST(ExplainKv, BatchMultipliesBytesAndTimeButNotBytesPerToken) {
  const KvExplanation one = Explain(kLlama2, "int4:g128", 4096, 1);
  const KvExplanation eight = Explain(kLlama2, "int4:g128", 4096, 8);
  EXPECT_EQ(eight.kv.bytes, 8 * one.kv.bytes);
  EXPECT_EQ(eight.ledger.kv_bytes, 8 * one.ledger.kv_bytes);
  EXPECT_DOUBLE_EQ(eight.kv.stream_ms, 8 * one.kv.stream_ms);
  EXPECT_EQ(eight.kv.bytes_per_token, one.kv.bytes_per_token);
}

TEST(ExplainKv, F16CacheOfSmolLm2At8192TokensIsExact) {
  const KvExplanation e = Explain(kSmolLm2, "f16", 8192, 1);
  EXPECT_EQ(e.kv.bytes, 188743680);
  EXPECT_EQ(e.ledger.kv_bytes, 188743680);
  EXPECT_EQ(e.ledger.window_bytes + e.ledger.sink_bytes, 0);
  EXPECT_EQ(e.window.tokens, 0);
  EXPECT_EQ(e.ratio, 1);
}

TEST(ExplainKv, LedgerIsPagesPlusWindowPlusSinksAtEveryLength) {
  for (int64_t tokens : {1, 63, 64, 65, 128, 129, 4095, 4096, 4097}) {
    const KvExplanation e = Explain(kSmolLm2, "int4", tokens, 3);
    EXPECT_EQ(e.kv.bytes + e.window.added_bytes + e.sinks.added_bytes, e.ledger.kv_bytes) << tokens;
    EXPECT_EQ(e.ledger.code_bytes + e.ledger.metadata_bytes + e.ledger.padding_bytes +
                  e.ledger.window_bytes + e.ledger.sink_bytes,
              e.ledger.kv_bytes);
  }
}

// Bits a value of KIVI-2 (arXiv 2402.02750) by context, worked out by hand: groups of 32, a
// residual of 128.
TEST(ResidualOfKivi, GivesTheWorkedBitsByContext) {
  const KvSpec kivi2 = *ParseKvPreset("kivi2");
  const struct {
    int tokens, k_tokens, v_tokens;
    double k, v, mean;
  } rows[] = {{511, 127, 128, 6.231, 6.256, 6.244}, {512, 0, 128, 3.0, 6.25, 4.625},
              {513, 1, 128, 3.025, 6.244, 4.635},   {639, 127, 128, 5.58, 5.60, 5.59},
              {640, 0, 128, 3.0, 5.6, 4.3},         {1024, 0, 128, 3.0, 4.625, 3.8125},
              {4096, 0, 128, 3.0, 3.406, 3.203},    {8192, 0, 128, 3.0, 3.203, 3.1015}};
  for (const auto& row : rows) {
    const KiviResidual got = ResidualOfKivi(kLlama2, kivi2, row.tokens);
    EXPECT_EQ(got.k_tokens, row.k_tokens) << row.tokens;
    EXPECT_EQ(got.v_tokens, row.v_tokens) << row.tokens;
    // Printed to three digits behind the point, of 639 tokens to two.
    const double digits = row.tokens == 639 ? .0051 : .00051;
    EXPECT_NEAR(got.k_bits, row.k, digits) << row.tokens;
    EXPECT_NEAR(got.v_bits, row.v, digits) << row.tokens;
    EXPECT_NEAR(got.mean_bits, row.mean, digits) << row.tokens;
  }
  EXPECT_EQ(ResidualOfKivi(kLlama2, kivi2, 5).mean_bits, 16);
}

TEST(ResidualOfKivi, LayersThatStayF16AreCountedSo) {
  KvSpec spec = *ParseKvPreset("kivi2");
  spec.skip_layers = {0, 1, 2};
  EXPECT_NEAR(ResidualOfKivi(kSmolLm2, spec, 4096).k_bits, (27 * 3.0 + 3 * 16.0) / 30, 1e-12);
}

TEST(ExplainKv, PageLeavesTheWindowOneTokenAfterTheNextPageIsFull) {
  // Window 64: a query in page 2 reads page 0 as stored, one in page 1 does not.
  EXPECT_EQ(Explain(kSmolLm2, "int4", 128, 1).ledger.code_bytes, 0);
  EXPECT_EQ(Explain(kSmolLm2, "int4", 128, 1).window.tokens, 128);
  EXPECT_EQ(Explain(kSmolLm2, "int4", 129, 1).ledger.code_bytes, 64 * 30 * 3 * 64);
  EXPECT_EQ(Explain(kSmolLm2, "int4", 129, 1).window.tokens, 65);
}

TEST(ExplainKv, SkippedLayersStayF16) {
  KvSpec spec = *ParseKvPreset("int4");
  spec.skip_layers = {0, 29};
  const KvExplanation e = *ExplainKv(kSmolLm2, spec, 4096, 1, *FindDevice("l4"));
  const KvExplanation all = Explain(kSmolLm2, "int4", 4096, 1);
  EXPECT_EQ(e.kv.bytes_per_token,
            28 * all.kv.bytes_per_token / 30 + 2 * all.f16.bytes_per_token / 30);
}

// 3 of the 18 layers of Gemma 3 270M see all, the others the newest 512 tokens; an f16 token of a
// layer takes 2 * 256 * 2 = 1,024 bytes.
// Layers with a window hold the pages of what they see and one page more.
TEST(ExplainKv, LayersReadNoMoreThanTheirWindowsAndHoldAPageMore) {
  constexpr KvGeometry kGemma{18, 1, 256, 4};
  std::vector<int64_t> windows(18, 512);
  windows[5] = windows[11] = windows[17] = 0;
  const auto explain = [&](const char* preset, int64_t tokens) {
    return *ExplainKv(kGemma, *ParseKvPreset(preset), tokens, 2, *FindDevice("l4"), windows);
  };
  const KvExplanation f16 = explain("f16", 4096);
  EXPECT_EQ(f16.kv.bytes, 2 * (3 * 4096 + 15 * 640) * 1024);
  EXPECT_EQ(f16.ledger.kv_bytes, f16.kv.bytes);
  EXPECT_EQ(f16.ledger.effective_bits, 16);
  EXPECT_EQ(f16.kv.read_bytes, 2 * (3 * 4096 + 15 * 512) * 1024);
  EXPECT_EQ(f16.ledger.read_bytes, f16.kv.read_bytes);
  EXPECT_EQ(f16.kv.stream_ms, f16.f16.stream_ms);
  EXPECT_EQ(f16.flops, 4.0 * 4 * 256 * 2 * (3 * 4096 + 15 * 512));
  EXPECT_DOUBLE_EQ(f16.flops_per_byte, 4.0);  // 4 heads' 4 operations a channel over 4 bytes of it
  EXPECT_EQ(explain("f16", 512).kv.read_bytes, explain("f16", 512).kv.bytes);
  // A page of a token is read whole, its part outside of the window too: 4,096 - 512 lies inside
  // the page [3,520, 3,584) at 4,090 tokens.
  const KvExplanation coded = explain("plain4", 4090), at_4096 = explain("plain4", 4096);
  EXPECT_GT(coded.ledger.read_bytes, at_4096.ledger.read_bytes);
  EXPECT_LT(at_4096.ledger.read_bytes, coded.ledger.read_bytes);
}

TEST(ExplainKv, WindowsShorterThanAPageReadNoStoredPageOfTheirLayers) {
  const std::vector<int64_t> windows = {5};
  const auto read = [&](int64_t tokens) {
    return LedgerOf({1, 1, 64, 1}, *ParseKvPreset("plain4"), tokens, 1, windows).read_bytes;
  };
  EXPECT_EQ(read(3), 3 * 256);
  EXPECT_EQ(read(300), 5 * 256);
}

// A page a head, of each layer without a window.
TEST(ExplainKv, OnlyLayersWithoutAWindowGrow) {
  const KvGeometry two{2, 3, 64, 3};
  const std::vector<int64_t> windows = {0, 200};
  for (const char* preset : {"f16", "int4", "plain3"}) {
    const KvSpec spec = *ParseKvPreset(preset);
    const auto held = [&](int64_t tokens) { return LedgerOf(two, spec, tokens, 1, windows); };
    const PageLayout page = MakePageLayout(spec.k, spec.v, 64, 64);
    EXPECT_EQ(held(1024).kv_bytes - held(960).kv_bytes, 3 * page.page_bytes) << preset;
    EXPECT_EQ(held(4096).kv_bytes - held(1024).kv_bytes, 48 * 3 * page.page_bytes) << preset;
  }
}

TEST(ExplainKv, PaddedHeadSizesAreBilled) {
  const KvExplanation e = Explain({1, 1, 72, 1}, "int4:token", 64, 1);
  EXPECT_EQ(e.kv.padding_bytes_per_token, 8);  // 72 codes a side lie in rows of 80
  EXPECT_EQ(e.kv.bytes_per_token, 80 + 2 * 4);
}

TEST(ExplainKv, NamesTheLimitThatHolds) {
  EXPECT_EQ(Explain(kLlama2, "f16", 1 << 20, 8).bound, "memory capacity");
  // Many query heads a KV head on few bits: the products outweigh the bytes.
  EXPECT_EQ(Explain({1, 1, 128, 512}, "int2", 4096, 1).bound, "matrix arithmetic");
}

TEST(ExplainKv, RefusesImpossibleRequests) {
  const Device device = *FindDevice("h200");
  EXPECT_EQ(ExplainKv(kSmolLm2, {}, 0, 1, device).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ExplainKv(kSmolLm2, {}, 1, 0, device).status().code(), StatusCode::kInvalidArgument);
  const std::vector<int64_t> two_layers = {0, 512};
  EXPECT_EQ(ExplainKv(kSmolLm2, {}, 1, 1, device, two_layers).status().message(),
            "windows of 2 layers for a model of 30");
  EXPECT_EQ(ExplainKv({0, 3, 64, 9}, {}, 1, 1, device).status().code(),
            StatusCode::kInvalidArgument);
  KvSpec spec;
  spec.skip_layers = {30};
  EXPECT_EQ(ExplainKv(kSmolLm2, spec, 1, 1, device).status().code(), StatusCode::kInvalidArgument);
}

TEST(ExplainKv, BytesBeyond64BitsAreRefusedNotWrapped) {
  constexpr int64_t kLongest = (int64_t{1} << 31) - 1;
  const KvExplanation e = Explain({126, 8, 128, 128}, "f16", kLongest, 1 << 10);
  EXPECT_GT(e.kv.bytes, int64_t{1'000'000'000'000'000'000});
  EXPECT_GT(e.ledger.kv_bytes, int64_t{1'000'000'000'000'000'000});
  EXPECT_FALSE(ExplainKv({1024, 4096, 1024, 4096}, {}, kLongest, 1 << 20, *FindDevice("l4")).ok());
}

TEST(FindDevice, UnknownNameListsTheTable) {
  const Result<Device> device = FindDevice("a100");
  ASSERT_FALSE(device.ok());
  for (const std::string& name : DeviceNames()) {
    EXPECT_NE(device.status().message().find(name), std::string::npos);
    EXPECT_TRUE(FindDevice(name).ok());
  }
}

TEST(FindDevice, IssueBudgetsAgreeWithTheVendorsFigures) {
  EXPECT_NEAR(FindDevice("a100-80gb")->IssueBudgetPerByte(), 9.56, 0.01);
  EXPECT_NEAR(FindDevice("h100")->IssueBudgetPerByte(), 9.99, 0.01);
  EXPECT_NEAR(FindDevice("h200")->IssueBudgetPerByte(), 6.97, 0.01);
}

const std::vector<float> kValues = {0.42f, -0.13f, 0.87f, 0.05f, -0.28f, 0.61f, 0.17f, -0.02f};

TEST(ExplainGroup, IntegerZeroGivesTheCodesOfTheWorkedExample) {
  const GroupExample e = *ExplainGroup(kValues, 4, Offset::kIntegerZero);
  EXPECT_EQ(e.scale, 0.07666015625);
  EXPECT_EQ(e.zero, 4);
  EXPECT_EQ(e.codes, (std::vector<int>{9, 2, 15, 5, 0, 12, 6, 4}));
  EXPECT_EQ(e.bytes, (std::vector<uint8_t>{0x29, 0x5F, 0xC0, 0x46}));
  EXPECT_NEAR(e.decoded[0], 0.3833, 1e-4);
  EXPECT_EQ(e.decoded[7], 0);
  EXPECT_NEAR(e.max_error, 0.0367, 1e-4);
  EXPECT_NEAR(e.mean_squared_error, 5.89e-4, 1e-6);
}

TEST(ExplainGroup, OtherConventionsGiveOtherCodes) {
  const std::vector<int> real_codes{9, 2, 15, 4, 0, 12, 6, 3};
  EXPECT_EQ(ExplainGroup(kValues, 4, Offset::kMin)->codes, real_codes);
  EXPECT_EQ(ExplainGroup(kValues, 4, Offset::kRealZero)->codes, real_codes);
  EXPECT_NEAR(ExplainGroup(kValues, 4, Offset::kRealZero)->zero, 3.6523, 1e-4);
  EXPECT_EQ(ExplainGroup(kValues, 4, Offset::kNone)->codes,
            (std::vector<int>{11, 7, 15, 8, 6, 13, 9, 8}));
}

TEST(ExplainGroup, OneOutlierErasesSevenValues) {
  const std::vector<float> values{0.03f, -0.05f, 0.02f, -0.01f, 0.04f, 0.01f, -0.02f, 4.80f};
  const GroupExample e = *ExplainGroup(values, 4, Offset::kIntegerZero);
  EXPECT_EQ(e.codes, (std::vector<int>{0, 0, 0, 0, 0, 0, 0, 15}));
  for (int i = 0; i < 7; ++i) EXPECT_EQ(e.decoded[i], 0);
  EXPECT_NEAR(e.decoded[7], 4.85, 0.01);
}

TEST(ExplainGroup, WidthsThatDoNotFillBytesArePackedWithoutGaps) {
  const GroupExample e = *ExplainGroup(std::vector<float>{0, 7, 3}, 3, Offset::kMin);
  EXPECT_EQ(e.codes, (std::vector<int>{0, 7, 3}));
  EXPECT_EQ(e.bytes, (std::vector<uint8_t>{0b11111000, 0b0}));
}

TEST(ExplainGroup, RefusesWhatHasNoCodes) {
  EXPECT_FALSE(ExplainGroup({}, 4, Offset::kMin).ok());
  EXPECT_FALSE(ExplainGroup(std::vector<float>{1, NAN}, 4, Offset::kMin).ok());
  EXPECT_FALSE(ExplainGroup(std::vector<float>{1e6f}, 4, Offset::kMin).ok());
  EXPECT_FALSE(ExplainGroup(std::vector<float>{1}, 7, Offset::kMin).ok());
  EXPECT_TRUE(ExplainGroup(std::vector<float>{0, 0}, 4, Offset::kIntegerZero).ok());
}

TEST(MeasureReadBandwidth, ReportsWhatItDid) {
  const ReadBandwidth measured = *MeasureReadBandwidth(2);
  EXPECT_GE(measured.buffer_bytes, 128 << 20);
  EXPECT_GT(measured.median_bytes_per_s, 0);
  EXPECT_GE(measured.best_bytes_per_s, measured.median_bytes_per_s);
  EXPECT_FALSE(MeasureReadBandwidth(0).ok());
}

}  // namespace
}  // namespace kvant
