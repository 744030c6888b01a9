// Head classes: thresholds, ratios and gates of the worked examples; the file.
#include "kvant/head_classes.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "base/xxh64.h"

namespace kvant {
namespace {

const std::vector<float> kGates = {.9f, .1f, .5f, .7f, .2f, .05f, .8f, .3f};

TEST(HeadClasses, ThresholdsAndMasksOfTheWorkedExample) {
  EXPECT_NEAR(GateThreshold(kGates, .5), .4, 1e-7);  // f32 gates
  EXPECT_EQ(FullHeads(kGates, .5), (std::vector<uint8_t>{1, 0, 1, 1, 0, 0, 1, 0}));
  EXPECT_NEAR(GateThreshold(kGates, .75), .725, 1e-7);
  EXPECT_EQ(FullHeads(kGates, .75), (std::vector<uint8_t>{1, 0, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(FullHeads(kGates, 0), std::vector<uint8_t>(8, 1));
  EXPECT_EQ(FullHeads(kGates, 1), std::vector<uint8_t>(8, 0));
}

TEST(HeadClasses, AHeadIsFullWhereItsGateReachesTheThreshold) {
  for (int percent = 0; percent < 100; ++percent) {
    const double sparsity = percent / 100.0, threshold = GateThreshold(kGates, sparsity);
    const auto full = FullHeads(kGates, sparsity);
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(full[i], kGates[i] >= threshold) << percent;
  }
}

TEST(HeadClasses, TiesStayFullFromTheFrontAndDoNotChangeTheirNumber) {
  const std::vector<float> gates = {.5f, 1, .5f, .5f};
  EXPECT_EQ(FullHeads(gates, .5), (std::vector<uint8_t>{1, 1, 0, 0}));
}

// Full and streaming heads of 320 tokens; three digits.
TEST(HeadClasses, RatiosOfTheWorkedExample) {
  struct {
    int64_t tokens;
    double quarter, half;
  } const rows[] = {
      {1024, 2.065, 1.524}, {4096, 3.241, 1.855}, {32768, 3.886, 1.981}, {131072, 3.971, 1.995}};
  for (const auto& row : rows) {
    EXPECT_NEAR(HeadClassesRatio(row.tokens, .25, 320), row.quarter, 5e-4) << row.tokens;
    EXPECT_NEAR(HeadClassesRatio(row.tokens, .5, 320), row.half, 5e-4) << row.tokens;
  }
  EXPECT_EQ(HeadClassesRatio(100, .25, 320), 1);
}

TEST(HeadClasses, AGateMixesBothOutputs) {
  const std::vector<float> full = {1, 2}, streaming = {.5f, 1};
  std::vector<float> out(2);
  GatedOutput(.3f, full, streaming, out);
  EXPECT_FLOAT_EQ(out[0], .65f);
  EXPECT_FLOAT_EQ(out[1], 1.3f);
}

HeadClasses TwoLayers() {
  return {.model_hash = 0x0123456789abcdef,
          .layers = 2,
          .kv_heads = 4,
          .first_tokens = 64,
          .recent_tokens = 256,
          .sparsity = .5,
          .gates = kGates};
}

TEST(HeadClasses, PolicyOfStreamingHeads) {
  EXPECT_EQ(StreamingSpec(TwoLayers()), "streaming:64,256");
}

void ExpectRefused(const std::string& text, StatusCode code, const std::string& word) {
  const Result<HeadClasses> read = ParseHeadClasses(text);
  ASSERT_FALSE(read.ok()) << text;
  EXPECT_EQ(read.status().code(), code) << read.status().message();
  EXPECT_NE(read.status().message().find(word), std::string::npos) << read.status().message();
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// With a checksum that fits again. REQUIRES: the layout that Print gives.
std::string Sealed(const std::string& text) {
  const std::string contents = text.substr(0, text.find("  \"checksum\""));
  const std::string hash = HashText(Xxh64(std::as_bytes(std::span<const char>(contents))));
  return contents + "  \"checksum\": \"" + hash + "\"\n}\n";
}

TEST(HeadClassesFile, ComesBackEqualInAnyLayout) {
  const HeadClasses classes = TwoLayers();
  const std::string text = PrintHeadClasses(classes);
  ASSERT_TRUE(ParseHeadClasses(text).ok()) << ParseHeadClasses(text).status().message();
  EXPECT_EQ(*ParseHeadClasses(text), classes);
  EXPECT_EQ(Sealed(text), text);
  std::string dense;
  for (const char c : text) {
    if (c != ' ' && c != '\n') dense += c;
  }
  EXPECT_EQ(*ParseHeadClasses(dense), classes);
  // Another order of members.
  std::string moved = Replaced(dense, "\"layers\":2,", "");
  moved.insert(moved.size() - 1, ",\"layers\":2");
  EXPECT_EQ(*ParseHeadClasses(moved), classes);
}

TEST(HeadClassesFile, EveryTruncationIsRefused) {
  const std::string text = PrintHeadClasses(TwoLayers());
  for (size_t length = 0; length + 2 < text.size(); ++length) {  // less the last brace
    ASSERT_EQ(ParseHeadClasses(text.substr(0, length)).status().code(), StatusCode::kCorrupt)
        << length;
  }
}

// A changed byte either breaks the text or changes its contents; blanks are neither.
TEST(HeadClassesFile, EveryChangedByteIsRefused) {
  const std::string text = PrintHeadClasses(TwoLayers());
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == ' ' || text[at] == '\n') continue;
    std::string bad = text;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    ASSERT_FALSE(ParseHeadClasses(bad).ok()) << at << ": " << text[at] << " to " << bad[at];
  }
}

TEST(HeadClassesFile, WhatIsWrongIsNamed) {
  const std::string text = PrintHeadClasses(TwoLayers());
  const auto corrupt = [](const std::string& bad, const std::string& word) {
    ExpectRefused(bad, StatusCode::kCorrupt, word);
  };
  ExpectRefused(Replaced(text, "_classes\": 1", "_classes\": 2"), StatusCode::kUnsupported,
                "version 2");
  corrupt(Replaced(text, "0.7", "0.6"), "checksum");
  corrupt(Replaced(text, "\"kv_heads\": 4,", ""), "no member 'kv_heads'");
  corrupt(Replaced(text, "\"layers\": 2,", "\"layers\": 2, \"layers\": 2,"), "second 'layers'");
  corrupt(Replaced(text, "\"layers\"", "\"floors\""), "'floors'");
  corrupt(Replaced(text, "0.7", "null"), "number");
  corrupt(Replaced(text, "0.7", "inf"), "number");
  corrupt(Replaced(text, "0.9, ", ""), "differ in length");
  corrupt(text + "x", "follows");
  // Damage that a checksum does not see, because it was computed afterwards.
  corrupt(Sealed(Replaced(text, "0.7", "1.7")), "gate of 1.7");
  corrupt(Sealed(Replaced(text, "\"layers\": 2", "\"layers\": 3")), "8 gates for 3 layers");
  corrupt(Sealed(Replaced(text, "sparsity\": 0.5", "sparsity\": 1.5")), "sparsity of 1.5");
  corrupt(Sealed(Replaced(text, "recent_tokens\": 256", "recent_tokens\": 0")), "recent tokens");
  corrupt(Sealed(Replaced(Replaced(text, "\"layers\": 2", "\"layers\": 4"), "\"kv_heads\": 4",
                          "\"kv_heads\": 2")),
          "gates of 4 KV heads");
}

}  // namespace
}  // namespace kvant
