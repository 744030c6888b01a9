#include "kvant/format.h"

#include <gtest/gtest.h>

#include "format/page_layout.h"

namespace kvant {
namespace {

constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};
constexpr Offset kOffsets[] = {Offset::kNone, Offset::kExtreme, Offset::kMin, Offset::kIntegerZero,
                               Offset::kRealZero};

bool Mentions(const Status& status, std::string_view what) {
  return status.message().find(what) != std::string::npos;
}

// Every uniform format that the grammar can name.
std::vector<Format> UniformFormats() {
  std::vector<Format> formats;
  for (int bits : kWidths) {
    for (Axis axis : {Axis::kChannel, Axis::kToken}) {
      for (int group : {0, 16, 32, 64, 128, 256}) {
        if (axis == Axis::kChannel && group == 0) continue;
        for (Offset offset : kOffsets) {
          formats.push_back({Levels::kUniform, FloatType::kF16, bits, axis, group, offset});
        }
      }
    }
  }
  return formats;
}

TEST(FormatSpec, EveryFormatComesBackFromItsSpecOnBothSides) {
  for (const Format& format : UniformFormats()) {
    const std::string spec = FormatSpec(format);
    for (Side side : {Side::kK, Side::kV}) {
      const Result<Format> parsed = ParseFormat(spec, side);
      ASSERT_TRUE(parsed.ok()) << parsed.status().message();
      EXPECT_EQ(*parsed, format) << spec;
      EXPECT_TRUE(CheckFormat(format, side, 80).ok()) << spec;
    }
  }
}

TEST(FormatSpec, KeysBeforeRopeAndSideBandsPrintAndReadBack) {
  const Format k = *ParseFormat("int4:out2:prerope:g32", Side::kK);
  EXPECT_TRUE(k.pre_rope);
  EXPECT_EQ(k.outliers, 2);
  EXPECT_EQ(FormatSpec(k), "int4:channel:g32:min:prerope:out2");
  EXPECT_EQ(*ParseFormat(FormatSpec(k), Side::kK), k);
  EXPECT_EQ(FormatSpec(*ParseFormat("int3:out16", Side::kV)), "int3:token:min:out16");
  // An alias with a side-band is no alias.
  EXPECT_EQ(FormatSpec(*ParseFormat("int8:token:g32:none:out1", Side::kV)),
            "int8:token:g32:none:out1");
  EXPECT_TRUE(CheckFormat(k, Side::kK, 80).ok());
  EXPECT_TRUE(Mentions(CheckFormat(k, Side::kV, 80), "prerope"));
  Format other = *ParseFormat("tq4", Side::kK);
  other.pre_rope = true;
  EXPECT_TRUE(Mentions(CheckFormat(other, Side::kK, 64), "prerope"));
  other = kFormatF16;
  other.outliers = 1;
  EXPECT_TRUE(Mentions(CheckFormat(other, Side::kV, 64), "side-band of 1"));
}

TEST(FormatSpec, RotationsAndClippingOfUniformFormatsPrintAndReadBack) {
  const Format k = *ParseFormat("int2:clip96:rot:rzero:token", Side::kK);
  EXPECT_TRUE(k.loaded_rotation && k.is_rotated() && k.needs_calibration());
  EXPECT_EQ(k.clip_percent, 96);
  EXPECT_EQ(FormatSpec(k), "int2:token:rzero:rot:clip96");
  EXPECT_EQ(*ParseFormat(FormatSpec(k), Side::kK), k);
  const Format v = *ParseFormat("int2:had:clip92", Side::kV);
  EXPECT_TRUE(v.is_rotated() && !v.needs_calibration());
  EXPECT_EQ(FormatSpec(v), "int2:token:min:had:clip92");
  EXPECT_EQ(v.EffectiveBits(128), 2.25);  // neither costs a bit
  // An alias with a rotation is no alias.
  EXPECT_EQ(FormatSpec(*ParseFormat("int8:token:g32:none:had", Side::kV)),
            "int8:token:g32:none:had");
  EXPECT_TRUE(ParseFormat("int4:channel:g32:clip90", Side::kK).ok());
}

// By the grammar and, for a Format that was put together by hand, by the check.
TEST(FormatSpec, WhatRotationsAndClippingContradictIsRefused) {
  const struct {
    const char* spec;
    Side side;
    const char* why;
  } rows[] = {{"int2:clip96", Side::kV, "V takes 'clip' only where it is rotated"},
              {"int2:had:rot", Side::kK, "repeats an option"},
              {"int2:prerope:had", Side::kK, "'prerope' takes no rotation"},
              {"int2:prerope:rot", Side::kK, "'prerope' takes no rotation"},
              {"int2:clip96:out1", Side::kK, "two ways"},
              {"int2:clip", Side::kK, "'clip'"},
              {"int2:clip49", Side::kK, "'clip49'"},
              {"int2:clip100", Side::kK, "'clip100'"},
              {"int2:clip96:clip96", Side::kK, "repeats an option"},
              {"tq2:clip96", Side::kK, "'clip96'"},
              {"tq2:had", Side::kK, "'had'"},
              {"q4_0:had", Side::kK, "q4_0:had"}};
  for (const auto& row : rows) {
    const Status status = ParseFormat(row.spec, row.side).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << row.spec;
    EXPECT_TRUE(Mentions(status, row.why)) << status.message();
  }
  Format f = *ParseFormat("int2:clip96", Side::kK);
  EXPECT_TRUE(Mentions(CheckFormat(f, Side::kV, 64), "only where it is rotated"));
  f.clip_percent = 100;
  EXPECT_TRUE(Mentions(CheckFormat(f, Side::kK, 64), "100 %"));
  f = *ParseFormat("int2:had", Side::kK);
  f.loaded_rotation = true;
  EXPECT_TRUE(Mentions(CheckFormat(f, Side::kK, 64), "two rotations"));
  for (const char* spec : {"tq2", "f16", "mxfp4"}) {
    f = *ParseFormat(spec, Side::kK);
    f.clip_percent = 96;
    EXPECT_TRUE(Mentions(CheckFormat(f, Side::kK, 64), "evenly spaced")) << spec;
    f.clip_percent = 0;
    f.hadamard = true;
    EXPECT_TRUE(Mentions(CheckFormat(f, Side::kK, 64), "evenly spaced")) << spec;
  }
}

TEST(FormatSpec, AliasesNameTheirExactMeaningAndPrintAsThemselves) {
  const struct {
    const char* name;
    int bits;
    Offset offset;
    double effective_bits;
  } aliases[] = {{"q8_0", 8, Offset::kNone, 8.5}, {"q4_0", 4, Offset::kExtreme, 4.5},
                 {"q4_1", 4, Offset::kMin, 5.0},  {"q5_0", 5, Offset::kExtreme, 5.5},
                 {"q5_1", 5, Offset::kMin, 6.0},  {"iq4_nl", 4, Offset::kNone, 4.5}};
  for (const auto& alias : aliases) {
    const Result<Format> format = ParseFormat(alias.name, Side::kK);
    ASSERT_TRUE(format.ok()) << alias.name;
    EXPECT_EQ(format->bits, alias.bits) << alias.name;
    EXPECT_EQ(format->offset, alias.offset) << alias.name;
    EXPECT_EQ(format->axis, Axis::kToken) << alias.name;
    EXPECT_EQ(format->group, 32) << alias.name;
    EXPECT_EQ(format->EffectiveBits(64), alias.effective_bits) << alias.name;
    EXPECT_EQ(FormatSpec(*format), alias.name);
  }
  for (const char* name : {"f32", "f16", "bf16"}) {
    EXPECT_EQ(FormatSpec(*ParseFormat(name, Side::kV)), name);
  }
  EXPECT_EQ(ParseFormat("f32", Side::kK)->EffectiveBits(64), 32);
  EXPECT_EQ(ParseFormat("bf16", Side::kK)->EffectiveBits(64), 16);
  EXPECT_EQ(ParseFormat("iq4_nl", Side::kK)->levels, Levels::kCodebook);
}

TEST(FormatSpec, WhatIsLeftOutDependsOnTheSide) {
  EXPECT_EQ(FormatSpec(*ParseFormat("tcx3:n8:bal:mean", Side::kK)), "tcx3:mean:bal:n8");
  EXPECT_EQ(FormatSpec(*ParseFormat("nest3:n8:mean", Side::kK)), "nest3:mean:n8");
  EXPECT_EQ(FormatSpec(*ParseFormat("fit3:rot:n8:mean", Side::kK)), "fit3:mean:n8:rot");
  EXPECT_EQ(FormatSpec(*ParseFormat("int4:smooth:token:rzero", Side::kK)),
            "int4:token:rzero:smooth");
  for (const char* bad : {"int4:smooth", "fit4:mean", "fit4:smooth", "q4_0:smooth"}) {
    EXPECT_EQ(ParseFormat(bad, Side::kV).status().code(), StatusCode::kInvalidArgument) << bad;
  }
  for (const char* bad :
       {"tq5", "tc4", "tcx", "tq", "tq4:g64", "tq4:n8:n8", "tq44", "tq-1", "tq1", "tc1", "nest",
        "nest1", "nest5", "tq1:mean", "fit5", "fit", "fit4:rot:rot", "int4:smooth:smooth"}) {
    EXPECT_EQ(ParseFormat(bad, Side::kK).status().code(), StatusCode::kInvalidArgument) << bad;
  }
  const Format k = *ParseFormat("int4", Side::kK), v = *ParseFormat("int4", Side::kV);
  EXPECT_EQ(k, (Format{Levels::kUniform, FloatType::kF16, 4, Axis::kChannel, 64, Offset::kMin}));
  EXPECT_EQ(v, (Format{Levels::kUniform, FloatType::kF16, 4, Axis::kToken, 0, Offset::kMin}));
  EXPECT_EQ(ParseFormat("int4:token", Side::kK)->group, 0);
  EXPECT_EQ(ParseFormat("int4:channel", Side::kV)->group, 64);
  EXPECT_EQ(*ParseFormat("int4:g32:zero:channel", Side::kV),
            *ParseFormat("int4:channel:g32:zero", Side::kK));
}

TEST(FormatSpec, RefusalsNameTheValueAndListWhatIsPossible) {
  const struct {
    const char* spec;
    const char* named;
  } bad[] = {{"int7", "'7'"},
             {"int", "''"},
             {"int4x", "'4x'"},
             {"int-4", "'-4'"},
             {"int4:g48", "'g48'"},
             {"int4:g", "'g'"},
             {"int4:g-16", "'g-16'"},
             {"int4:g0", "'g0'"},
             {"int4:out", "'out'"},
             {"int4:out0", "'out0'"},
             {"int4:out17", "'out17'"},
             {"int4:out1:out2", "'out2'"},
             {"int4:prerope:prerope", "'prerope'"},
             {"tq4:prerope", "'prerope'"},
             {"int4:", "''"},
             {"int4:row", "'row'"},
             {"int4:g16:g32", "'g32'"},
             {"int4:min:zero", "'zero'"},
             {"int4:token:channel", "'channel'"},
             {"q4_2", "q4_2"},
             {"", "''"},
             {"int99999999999999999999", "'99999999999999999999'"},
             {"fp8_e3m4", "fp8_e3m4"},
             {"mxfp4:g16", "mxfp4:g16"},
             {"int4:channel::g64", "''"},
             {"INT4", "INT4"}};
  for (const auto& b : bad) {
    const Result<Format> format = ParseFormat(b.spec, Side::kK);
    ASSERT_FALSE(format.ok()) << b.spec;
    EXPECT_EQ(format.status().code(), StatusCode::kInvalidArgument) << b.spec;
    EXPECT_TRUE(Mentions(format.status(), b.named)) << format.status().message();
    EXPECT_TRUE(Mentions(format.status(), "possible: ")) << format.status().message();
  }
}

TEST(Format, EffectiveBitsFollowTheTableOfTheField) {
  const double expected[4][5] = {{4.0, 3.0, 2.5, 2.25, 2.125},
                                 {5.0, 4.0, 3.5, 3.25, 3.125},
                                 {6.0, 5.0, 4.5, 4.25, 4.125},
                                 {10.0, 9.0, 8.5, 8.25, 8.125}};
  const int widths[] = {2, 3, 4, 8}, groups[] = {16, 32, 64, 128, 256};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 5; ++j) {
      for (Axis axis : {Axis::kChannel, Axis::kToken}) {
        const Format f{Levels::kUniform, FloatType::kF16, widths[i], axis, groups[j], Offset::kMin};
        EXPECT_EQ(f.EffectiveBits(256), expected[i][j]) << FormatSpec(f);
      }
    }
  }
}

// 42 of 4,096 values as u16 and f16 are .328125 bit a value, as u32 and f32 twice that.
TEST(Format, SideBandsAreBilledByTheirSlots) {
  static_assert(kSlotBits * 42 / 4096 == 0.328125);
  const Format k = *ParseFormat("int4:channel:g64:min:out1", Side::kK);
  EXPECT_EQ(k.SideBandBits(128), 0.5);
  EXPECT_EQ(k.EffectiveBits(128), 5.0);
  const Format v = *ParseFormat("int4:token:min:out2", Side::kV);
  EXPECT_EQ(v.SideBandBits(128), 0.5);
  EXPECT_EQ(v.EffectiveBits(128), 4.75);
  EXPECT_EQ(ParseFormat("int4", Side::kV)->SideBandBits(128), 0);
}

TEST(Format, AShortTailGroupIsBilledAsAWholeOne) {
  const Format f{Levels::kUniform, FloatType::kF16, 4, Axis::kToken, 64, Offset::kMin};
  EXPECT_DOUBLE_EQ(f.EffectiveBits(80), 4 + 2 * 32.0 / 80);
  EXPECT_DOUBLE_EQ(f.EffectiveBits(32), 4 + 32.0 / 32);  // the head is the group
  const Format whole{Levels::kUniform, FloatType::kF16, 8, Axis::kToken, 0, Offset::kNone};
  EXPECT_DOUBLE_EQ(whole.EffectiveBits(100), 8 + 16.0 / 100);
}

TEST(CheckFormat, RefusesWhatCannotBeStored) {
  const Format good{Levels::kUniform, FloatType::kF16, 4, Axis::kChannel, 64, Offset::kMin};
  for (int head_dim : {0, 2, 3, 66, 1028, -64}) {
    const Status status = CheckFormat(good, Side::kK, head_dim);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << head_dim;
    EXPECT_TRUE(Mentions(status, std::to_string(head_dim))) << status.message();
    EXPECT_FALSE(CheckFormat(kFormatF16, Side::kK, head_dim).ok()) << head_dim;
  }
  Format f = good;
  f.bits = 7;
  EXPECT_TRUE(Mentions(CheckFormat(f, Side::kV, 64), "7 bits"));
  f = good;
  f.group = 48;
  EXPECT_TRUE(Mentions(CheckFormat(f, Side::kV, 64), "group of 48"));
  f = good;
  f.group = 0;  // along tokens there is no "whole head"
  EXPECT_FALSE(CheckFormat(f, Side::kK, 64).ok());
}

TEST(CheckFormat, TheCodebookExistsOnlyAsIq4Nl) {
  const Format iq4 = *ParseFormat("iq4_nl", Side::kK);
  EXPECT_TRUE(CheckFormat(iq4, Side::kK, 64).ok());
  for (const Format& f :
       {Format{Levels::kCodebook, FloatType::kF16, 4, Axis::kChannel, 32, Offset::kNone},
        Format{Levels::kCodebook, FloatType::kF16, 3, Axis::kToken, 32, Offset::kNone},
        Format{Levels::kCodebook, FloatType::kF16, 4, Axis::kToken, 32, Offset::kMin}}) {
    EXPECT_EQ(CheckFormat(f, Side::kK, 64).code(), StatusCode::kInvalidArgument);
  }
}

TEST(KvPreset, NamesSetBothSidesSinksAndWindow) {
  for (const std::string& name : KvPresetNames()) {
    const Result<KvSpec> spec = ParseKvPreset(name);
    ASSERT_TRUE(spec.ok()) << name;
    EXPECT_TRUE(CheckKvSpec(*spec, {2, 2, 64, 4}).ok()) << name;
  }
  const KvSpec int4 = *ParseKvPreset("int4");
  EXPECT_EQ(FormatSpec(int4.k), "tq4:mean:bal:n8");
  EXPECT_EQ(FormatSpec(int4.v), "tq4:n8");
  EXPECT_EQ(int4.sinks_tokens, 4);
  EXPECT_EQ(int4.window_tokens, 64);
  EXPECT_EQ(FormatSpec(ParseKvPreset("int8")->v), "int8:token:none");
  EXPECT_EQ(FormatSpec(ParseKvPreset("plain2")->k), "int2:channel:g32:min");
  EXPECT_EQ(ParseKvPreset("kivi2")->window_tokens, 128);
  EXPECT_EQ(ParseKvPreset("kivi2")->sinks_tokens, 0);
  EXPECT_EQ(FormatSpec(ParseKvPreset("fp8")->k), "fp8_e4m3");
}

TEST(KvPreset, TwoSpecsNameTheSidesApart) {
  const KvSpec spec = *ParseKvPreset("tq3:mean/int4:token:g64");
  EXPECT_EQ(FormatSpec(spec.k), "tq3:mean");
  EXPECT_EQ(FormatSpec(spec.v), "int4:token:g64:min");
  EXPECT_TRUE(Mentions(ParseKvPreset("tq3/tq3:mean").status(), "V takes neither"));
  EXPECT_FALSE(ParseKvPreset("tq3/").ok());
  EXPECT_FALSE(ParseKvPreset("/tq3").ok());
}

// Codes, norms, mean and parameters of 64 tokens; gaps between the planes' lines left out.
TEST(Format, EffectiveBitsOfNormedFormats) {
  const auto bits = [](const char* spec, Side side, int head_dim) {
    return ParseFormat(spec, side)->EffectiveBits(head_dim);
  };
  EXPECT_DOUBLE_EQ(bits("tq4", Side::kK, 128), 4.125);
  EXPECT_DOUBLE_EQ(bits("tq3", Side::kV, 128), 3.125);
  EXPECT_DOUBLE_EQ(bits("tq2", Side::kV, 64), 2.25);
  EXPECT_DOUBLE_EQ(bits("tc2:n8", Side::kV, 64), 2 + (64 + 4) / 512.0);
  EXPECT_DOUBLE_EQ(bits("tcx4:mean:bal:n8", Side::kK, 64), 4 + (64 + 64 + 6) / 512.0);
  EXPECT_DOUBLE_EQ(bits("nest3:mean:bal:n8", Side::kK, 64), 3 + (64 + 64 + 6) / 512.0);
  EXPECT_DOUBLE_EQ(bits("tq1:n8", Side::kV, 64), 1 + (64 + 4) / 512.0);
}

// One bit of K loses more than it saves; the sentence says so in place of a list of widths.
TEST(CheckFormat, OneBitIsForVOnly) {
  const Status parsed = ParseFormat("tq1:n8", Side::kK).status();
  EXPECT_NE(parsed.message().find("one bit is for V only"), std::string::npos);
  const Format format = *ParseFormat("tq1:n8", Side::kV);
  EXPECT_TRUE(CheckFormat(format, Side::kV, 64).ok());
  const Status checked = CheckFormat(format, Side::kK, 64);
  EXPECT_EQ(checked.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(checked.message().find("one bit is for V only"), std::string::npos);
}

TEST(Format, EffectiveBitsOfSmallFloats) {
  const struct {
    const char* spec;
    double bits;
  } formats[] = {{"fp8_e4m3", 8.125}, {"fp8_e5m2", 8.125},   {"mxfp4", 4.25}, {"mxfp4:c20", 4.25},
                 {"nvfp4", 4.5},      {"nvfp4_4over6", 4.5}, {"if4", 4.5}};
  for (const auto& f : formats) {
    for (Side side : {Side::kK, Side::kV}) {
      const Format format = *ParseFormat(f.spec, side);
      EXPECT_EQ(FormatSpec(format), f.spec);
      EXPECT_DOUBLE_EQ(format.EffectiveBits(128), f.bits) << f.spec;
      const SideLayout page = MakePageLayout(format, format, 128, 64).k;
      EXPECT_EQ(page.bytes, 64 * 128 * f.bits / 8) << f.spec;
      EXPECT_EQ(page.padding_bytes(), 0) << f.spec;
    }
  }
  EXPECT_EQ(*ParseFormat("fp8_e5m2:token", Side::kK), *ParseFormat("fp8_e5m2", Side::kV));
}

TEST(CheckFormat, SmallFloatsExistOnlyByName) {
  Format f = *ParseFormat("mxfp4", Side::kK);
  f.group = 64;
  EXPECT_EQ(CheckFormat(f, Side::kK, 64).code(), StatusCode::kInvalidArgument);
  f = *ParseFormat("fp8_e4m3", Side::kK);
  f.axis = Axis::kChannel;
  EXPECT_EQ(CheckFormat(f, Side::kK, 64).code(), StatusCode::kInvalidArgument);
  f = *ParseFormat("int4", Side::kK);
  f.scale = Scale::kE8M0;
  EXPECT_EQ(CheckFormat(f, Side::kK, 64).code(), StatusCode::kInvalidArgument);
  f = *ParseFormat("tq4", Side::kK);
  f.scale = Scale::kE4M3;
  EXPECT_EQ(CheckFormat(f, Side::kK, 64).code(), StatusCode::kInvalidArgument);
}

// A page of int4 has one line that both sides share, not one each.
TEST(PageLayout, NormedSidesShareTheLineBetweenThem) {
  const KvSpec int4 = *ParseKvPreset("int4");
  const PageLayout page = MakePageLayout(int4.k, int4.v, 64, 64);
  EXPECT_EQ(page.page_bytes, 2048 + 64 + 64 + 64 + 64 + 2048);
  EXPECT_EQ((page.v_offset_bytes + page.v.codes_offset) % 64, 0);
  EXPECT_LE(page.k.parameters_offset + 6, page.v_offset_bytes);
  EXPECT_LE(page.v.parameters_offset + 4, page.v.norms_offset);
}

TEST(KvPreset, AGroupBehindAWidthSetsBothSides) {
  const KvSpec spec = *ParseKvPreset("int4:g128");
  EXPECT_EQ(FormatSpec(spec.k), "int4:channel:g128:min");
  EXPECT_EQ(FormatSpec(spec.v), "int4:token:g128:min");
  EXPECT_TRUE(Mentions(ParseKvPreset("int4:g48").status(), "'g48'"));
}

TEST(KvPreset, ASpecNamesBothSidesAlike) {
  EXPECT_EQ(FormatSpec(ParseKvPreset("q4_0")->k), "q4_0");
  EXPECT_EQ(FormatSpec(ParseKvPreset("int5:token:g32:zero")->v), "int5:token:g32:zero");
  // More than a group makes a preset's name a plain format.
  EXPECT_EQ(FormatSpec(ParseKvPreset("int4:g32:zero")->k), "int4:channel:g32:zero");
}

TEST(KvPreset, PoliciesAreUnsupportedAndUnknownPresetsInvalid) {
  EXPECT_EQ(ParseKvPreset("diffkv").status().code(), StatusCode::kUnsupported);
  EXPECT_TRUE(Mentions(ParseKvPreset("diffkv").status(), "'diffkv'"));
  EXPECT_EQ(ParseKvPreset("kivi9").status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Mentions(ParseKvPreset("kivi9").status(), "'kivi9'"));
}

TEST(CheckKvSpec, RefusesWhatNoKernelReads) {
  const KvSpec spec = *ParseKvPreset("f16/if4");
  EXPECT_TRUE(CheckFormat(spec.v, Side::kV, 64).ok());
  EXPECT_EQ(CheckKvSpec(spec, {4, 2, 64, 8}).code(), StatusCode::kInvalidArgument);
}

TEST(CheckKvSpec, NamesTheValueThatDoesNotFit) {
  const KvGeometry geometry{4, 2, 64, 8};
  const struct {
    KvSpec spec;
    const char* named;
  } bad[] = {{{kFormatF16, kFormatF16, 65, 64, {}}, "65"},
             {{kFormatF16, kFormatF16, -1, 64, {}}, "-1"},
             {{kFormatF16, kFormatF16, 4, 96, {}}, "96"},
             {{kFormatF16, kFormatF16, 4, -64, {}}, "-64"},
             {{kFormatF16, kFormatF16, 4, 1 << 21, {}}, "2097152"},
             {{kFormatF16, kFormatF16, 4, 64, {0, 4}}, "layer 4"},
             {{kFormatF16, kFormatF16, 4, 64, {-1}}, "layer -1"}};
  for (const auto& b : bad) {
    const Status status = CheckKvSpec(b.spec, geometry);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(Mentions(status, b.named)) << status.message();
  }
  KvSpec odd;
  odd.v = {Levels::kUniform, FloatType::kF16, 4, Axis::kToken, 24, Offset::kMin};
  EXPECT_TRUE(Mentions(CheckKvSpec(odd, geometry), "V format")) << "the side is named";
  EXPECT_TRUE(CheckKvSpec({kFormatF16, kFormatF16, 64, 0, {0, 3}}, geometry).ok());
}

TEST(CheckGeometry, RefusesHeadsThatDoNotGroup) {
  EXPECT_TRUE(CheckGeometry({1, 1, 4, 1}).ok());
  EXPECT_TRUE(Mentions(CheckGeometry({4, 3, 64, 8}), "q head count 8"));
  EXPECT_TRUE(Mentions(CheckGeometry({0, 3, 64, 9}), "layer count 0"));
  EXPECT_TRUE(Mentions(CheckGeometry({4, 0, 64, 9}), "KV head count 0"));
  EXPECT_TRUE(Mentions(CheckGeometry({4, 3, 65, 9}), "head_dim 65"));
  EXPECT_FALSE(CheckGeometry({4, 3, 64, 0}).ok());
}

TEST(LayerFormats, SkippedLayersStayF16) {
  KvSpec spec = *ParseKvPreset("int4");
  spec.skip_layers = {0, 2};
  EXPECT_EQ(LayerFormats(spec, 0), (FormatPair{kFormatF16, kFormatF16}));
  EXPECT_EQ(LayerFormats(spec, 1), (FormatPair{spec.k, spec.v}));
  EXPECT_EQ(LayerFormats(spec, 2).v, kFormatF16);
}

}  // namespace
}  // namespace kvant
