#include "meter/loop_count.h"

#include <gtest/gtest.h>

#include "meter/flow.h"
#include "meter/sass_for_test.h"

namespace kvant {
namespace {

SassFunction Function(std::initializer_list<std::string_view> lines, int start_bytes = 0) {
  return ParseSass(ListingJson(FunctionJson("kernel", start_bytes, lines)))->functions[0];
}

MeterOptions Bytes(int64_t payload, double metadata = 0, int64_t loaded = 0) {
  MeterOptions options;
  options.payload_bytes = payload;
  options.metadata_bytes = metadata;
  options.loaded_bytes = loaded;
  return options;
}

std::vector<LoopCount> Loops(std::initializer_list<std::string_view> lines,
                             const MeterOptions& declared = {}) {
  return CountLoops(Function(lines), declared).value();
}

std::string Refusal(std::initializer_list<std::string_view> lines, const MeterOptions& declared,
                    StatusCode code) {
  const Status status = CountLoops(Function(lines), declared).status();
  EXPECT_EQ(status.code(), code) << status.message();
  return status.message();
}

TEST(PipeOf, KnowsNamesAsTheyMoveFromTargetToTarget) {
  const struct {
    const char* opcode;
    Pipe pipe;
  } rows[] = {{"I2F.U32", Pipe::kXu},
              {"I2FP.F32.U32", Pipe::kAlu},
              {"I2F.U8", Pipe::kXu},
              {"HFMA2.MMA", Pipe::kHalf2},
              {"HFMA2", Pipe::kHalf2},
              {"HMMA.16816.F32", Pipe::kTensor},
              {"IMMA.16832.S8.S8", Pipe::kTensor},
              {"ULDC.64", Pipe::kUniform},
              {"LDCU.64", Pipe::kUniform},
              {"LDC", Pipe::kConstant},
              {"RED.E.ADD", Pipe::kGlobalStore},
              {"REDG.E.ADD", Pipe::kGlobalStore},
              {"F2FP.PACK_AB", Pipe::kAlu},
              {"F2FP.F16.F32.PACK_AB", Pipe::kAlu},
              {"FMNMX3", Pipe::kAlu},
              {"VIADD", Pipe::kAlu},
              {"R2UR", Pipe::kUniform},
              {"HADD2.F32", Pipe::kHalf2},
              {"IMAD.MOV.U32", Pipe::kFma},
              {"MUFU.EX2", Pipe::kXu},
              {"LDGSTS.E.BYPASS.128", Pipe::kGlobalLoad},
              {"LDS.128", Pipe::kSharedMemory},
              {"STL.64", Pipe::kLocalMemory},
              {"BRA.U", Pipe::kControl},
              {"DFMA", Pipe::kFp64},
              {"SHFL.BFLY", Pipe::kShuffle},
              {"TEX.B", Pipe::kTexture}};
  for (const auto& row : rows) {
    EXPECT_EQ(*PipeOf(row.opcode), row.pipe) << row.opcode;
  }
}

TEST(PipeOf, AnUnknownOpcodeIsAnErrorAndNotZero) {
  const Status status = PipeOf("FROB.X").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("'FROB.X'"), std::string::npos);
  EXPECT_FALSE(PipeOf("").ok());
  EXPECT_FALSE(PipeOf("LO").ok());  // a part of a name is none
  Refusal({"LDG.E R1,[R2]", "FROB R1", "@P0 BRA 0x0", "EXIT"}, {}, StatusCode::kUnsupported);
}

TEST(CountLoops, CountsOneIterationByPipe) {
  const std::vector<LoopCount> loops = Loops({
      "S2R R0,SR_TID.X",                 // 0x00
      "LDG.E.128 R4,[R2.64]",            // 0x10: the head
      "LOP3.LUT R1,R4,0xf,RZ,0xc0,!PT",  // 0x20
      "@P1 HFMA2 R1,R1,R2,R3",           // issued, whatever P1 says
      "FFMA R1,R1,R2,R3",                //
      "MUFU.EX2 R1,R1",                  //
      "UIADD3 UR4,UR4,0x1,URZ",          //
      "SHFL.BFLY PT,R2,R1,0x1,0x1f",     //
      "@!P0 STG.E [R2.64],R1",           //
      "@P0 BRA 0x10",                    // 0x90
      "EXIT",                            //
  });
  ASSERT_EQ(loops.size(), 1u);
  const LoopCount& loop = loops[0];
  EXPECT_EQ(loop.begin_bytes, 0x10);
  EXPECT_EQ(loop.end_bytes, 0xa0);
  EXPECT_EQ(loop.Issued(), 9);
  EXPECT_EQ(loop.CoreCount(), 5);
  for (Pipe pipe : {Pipe::kAlu, Pipe::kHalf2, Pipe::kFma, Pipe::kXu, Pipe::kUniform, Pipe::kShuffle,
                    Pipe::kGlobalLoad, Pipe::kGlobalStore, Pipe::kControl}) {
    EXPECT_EQ(loop.Of(pipe), 1) << PipeName(pipe);
  }
  EXPECT_EQ(loop.payload_bytes, 16);
  EXPECT_EQ(loop.PerByte(loop.Issued()), 9.0 / 16);
}

// What sm_80's compiler puts between matrix products.
TEST(CountLoops, APauseIsIssuedButUsesNoCore) {
  const std::vector<LoopCount> loops = Loops({
      "LDG.E R4,[R2.64]",
      "@!UPT UIADD3 URZ,URZ,URZ,URZ",
      "@!PT LDG.E.128 R8,[R2.64]",
      "@UPT UIADD3 UR4,UR4,0x1,URZ",
      "@P0 BRA 0x0",
      "EXIT",
  });
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].Issued(), 5);
  EXPECT_EQ(loops[0].CoreCount(), 1);
  EXPECT_EQ(loops[0].Of(Pipe::kControl), 3);
  EXPECT_EQ(loops[0].loaded_bytes, 4);
}

// The same loop as above, as sm_80 writes it when it cannot prove that lanes are together.
TEST(CountLoops, CopiesForLanesThatAreApartAreNotOfTheLoop) {
  for (const char* leave : {"BRA.DIV ~URZ,0x70", "@!PT BRA 0x70", "BRA.DIV UR7,0x70"}) {
    const std::vector<LoopCount> loops = Loops({
        "LDG.E R4,[R2.64]",             // 0x00
        leave,                          // 0x10
        "SHFL.BFLY PT,R5,R4,0x1,0x1f",  // 0x20
        "FADD R6,R5,R4",                // 0x30: where the copy comes back to
        "@P0 BRA 0x0",                  // 0x40
        "EXIT",                         // 0x50
        "NOP",                          // 0x60
        "MOV R7,0x1",                   // 0x70: the copy
        "MOV R4,0x90",                  //
        "CALL.REL.NOINC $__internal_0_$__cuda_sm70_shflsync_bfly_p",
        "MOV R5,R7",
        "BRA 0x30",
    });
    ASSERT_EQ(loops.size(), 1u) << leave;
    EXPECT_EQ(loops[0].Issued(), 5) << leave;
    EXPECT_EQ(loops[0].Of(Pipe::kShuffle), 1);
    EXPECT_TRUE(loops[0].calls.empty());
  }
}

TEST(CountLoops, TheBranchOverSuchACopyIsAlwaysTaken) {
  const std::vector<LoopCount> loops = Loops({
      "LDG.E R4,[R2.64]",    // 0x00
      "BRA.CONV ~URZ,0x50",  // 0x10
      "MOV R2,0x40",         // 0x20
      "CALL.REL.NOINC $__internal_0_$__cuda_sm70_shflsync_bfly_p",
      "BRA 0x60",                     // 0x40
      "SHFL.BFLY PT,R2,R4,0x1,0x1f",  // 0x50
      "FADD R5,R2,R5",                // 0x60
      "@!P0 BRA 0x0",                 //
      "EXIT",
  });
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].Issued(), 5);
  EXPECT_EQ(loops[0].Of(Pipe::kShuffle), 1);
  EXPECT_TRUE(loops[0].calls.empty());
}

TEST(CountLoops, ACallIsNamedBecauseItsInstructionsAreNotCounted) {
  const std::vector<LoopCount> loops =
      Loops({"LDG.E R4,[R2.64]", "CALL.REL.NOINC $__internal_0_$__cuda_sm20_div_u64", "@P0 BRA 0x0",
             "EXIT"});
  EXPECT_EQ(loops[0].calls, std::vector<std::string>{"$__internal_0_$__cuda_sm20_div_u64"});
}

TEST(CountLoops, ACallByOffsetIsAJump) {
  const std::vector<LoopCount> loops =
      Loops({"LDG.E R4,[R2.64]", "@P0 CALL.REL.NOINC 0x40", "@P1 BRA 0x0", "EXIT", "BRA 0x0"});
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].Issued(), 4);  // with what the jump leads to
  EXPECT_TRUE(loops[0].calls.empty());
}

// Older releases list helpers as functions of their own, whose offsets go on where the kernel ends.
TEST(CountLoops, OffsetsAreThoseOfTheSection) {
  const std::vector<LoopCount> loops = *CountLoops(
      Function({"MOV R1,R2", "LDG.E R4,[R2.64]", "@P0 BRA 0x110", "BRA 0x0"}, 0x100), {});
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].begin_bytes, 0x110);
  EXPECT_EQ(loops[0].Issued(), 2);
}

TEST(CountLoops, TheEndlessBranchBehindAKernelIsNoLoop) {
  EXPECT_TRUE(Loops({"@P0 EXIT", "BRA 0x10", "NOP"}).empty());
}

TEST(CountLoops, OnlyInnermostLoopsHaveIterationsToCount) {
  const std::vector<LoopCount> loops = Loops({"LDG.E.64 R4,[R2.64]",   // 0x00, outer
                                              "LDG.E.128 R4,[R2.64]",  // 0x10, inner
                                              "@P0 BRA 0x10", "@P1 BRA 0x0", "EXIT"});
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].payload_bytes, 16);
}

TEST(CountLoops, BranchesInsideCountAllTheirBlocks) {
  const std::vector<LoopCount> loops =
      Loops({"LDG.E R4,[R2.64]", "BRA.U !UP1,0x30", "FADD R1,R1,R2", "BRA.U UP0,0x0", "EXIT"});
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].Issued(), 4);
}

TEST(CountLoops, ConstantPredicatesAreNoConditions) {
  // With the edge out of the loop the FADD behind it would join it.
  const std::vector<LoopCount> loops =
      Loops({"LDG.E R4,[R2.64]", "@P0 EXIT", "@PT BRA 0x0", "FADD R1,R1,R2", "BRA 0x0"});
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].Issued(), 3);
}

TEST(CountLoops, JumpsThatCannotBeFollowedAreRefused) {
  EXPECT_NE(Refusal({"BRX R2,-0x10", "EXIT"}, {}, StatusCode::kUnsupported).find("BRX"),
            std::string::npos);
  Refusal({"BRA somewhere", "EXIT"}, {}, StatusCode::kCorrupt);
  Refusal({"BRA 0x8", "EXIT"}, {}, StatusCode::kCorrupt);
  // Two entries: 0x20 from above and 0x30 by the first branch.
  EXPECT_NE(Refusal({"MOV R1,R2", "@P0 BRA 0x30", "LDG.E R4,[R2.64]", "FADD R1,R1,R2",
                     "@P1 BRA 0x20", "EXIT"},
                    {}, StatusCode::kUnsupported)
                .find("two places"),
            std::string::npos);
}

TEST(CountLoops, DeclaredBytesAreCheckedAgainstTheLoads) {
  const std::initializer_list<std::string_view> int4_rows = {
      "LDG.E.128 R4,[R2.64]", "LDG.E R8,[R2.64]", "LDG.E.128.CONSTANT R4,[R2.64]",
      "LDG.E R8,[R2.64]",     "@P0 BRA 0x0",      "EXIT"};
  const LoopCount loop = Loops(int4_rows, Bytes(32, 2))[0];
  EXPECT_EQ(loop.payload_bytes, 32);
  EXPECT_EQ(loop.loaded_bytes, 40);
  EXPECT_EQ(loop.unroll, 1);
  EXPECT_DOUBLE_EQ(loop.FetchedPerPayloadByte(), 1.0625);
  // Metadata of the payload's width would make the same sum, so all loads must be declared.
  Refusal(int4_rows, Bytes(16), StatusCode::kInvalidArgument);
  const LoopCount two_rows = Loops(int4_rows, Bytes(16, 1, 20))[0];
  EXPECT_EQ(two_rows.unroll, 2);
  EXPECT_EQ(two_rows.payload_bytes, 32);
  EXPECT_DOUBLE_EQ(two_rows.FetchedPerPayloadByte(), 1.0625);
  EXPECT_EQ(Loops(int4_rows, Bytes(20))[0].unroll, 2);  // all that is loaded
  EXPECT_EQ(Loops(int4_rows, Bytes(24, 0, 40))[0].payload_bytes, 24);
  Refusal(int4_rows, Bytes(32, 0, 36), StatusCode::kInvalidArgument);
  const std::string refusal = Refusal(int4_rows, Bytes(24), StatusCode::kInvalidArgument);
  EXPECT_NE(refusal.find("no loop loads 24 bytes"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("the loop at 0x0 loads 2 x 16 + 2 x 4"), std::string::npos) << refusal;
  Refusal({"EXIT"}, Bytes(16), StatusCode::kInvalidArgument);
}

TEST(CountLoops, NarrowLoadsCountTheirBytesAndStoresNone) {
  const LoopCount loop = Loops({"LDG.E.U8 R1,[R2]", "LDG.E.S16.CONSTANT R1,[R2]",
                                "LDG.E.64 R2,[R4]", "LDGSTS.E.BYPASS.LTC128B.128 [R1],[R2.64]",
                                "STG.E.128 [R2],R4", "LDS.128 R4,[R2]", "@P0 BRA 0x0", "EXIT"})[0];
  EXPECT_EQ(loop.payload_bytes, 1 + 2 + 8 + 16);
}

TEST(CountLoops, TheLoopThatReadsMostComesFirstAndOthersHaveNoPayload) {
  const std::initializer_list<std::string_view> two = {
      "LDG.E R4,[R2.64]", "@P0 BRA 0x0",  // of the query, say
      "LDG.E.128 R4,[R2.64]", "@P0 BRA 0x20", "EXIT"};
  EXPECT_EQ(Loops(two)[0].payload_bytes, 16);
  EXPECT_EQ(Loops(two)[1].payload_bytes, 4);
  EXPECT_EQ(Loops(two, Bytes(16))[0].begin_bytes, 0x20);
  EXPECT_EQ(Loops(two, Bytes(16))[1].payload_bytes, 0);
}

TEST(CountLoops, BulkCopiesNeedTheirBytesGiven) {
  const std::initializer_list<std::string_view> bulk = {"UBLKCP [UR4],[UR6],UR8", "@P0 BRA 0x0",
                                                        "EXIT"};
  EXPECT_NE(Refusal(bulk, {}, StatusCode::kInvalidArgument).find("must be given"),
            std::string::npos);
  EXPECT_EQ(Loops(bulk, Bytes(128))[0].payload_bytes, 128);
  Refusal({"TEX.B R1,R2", "@P0 BRA 0x0", "EXIT"}, {}, StatusCode::kInvalidArgument);
}

TEST(SpillBytes, AreThoseOfLocalMemoryAnywhere) {
  EXPECT_EQ(SpillBytes(Function({"STL.64 [R1],R2", "EXIT", "LDL R2,[R1+0x8]"})), 12);
  EXPECT_EQ(SpillBytes(Function({"STG.E [R1],R2", "EXIT"})), 0);
}

}  // namespace
}  // namespace kvant
