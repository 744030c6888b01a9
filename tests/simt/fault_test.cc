// Faults planted in the decode kernels, each alone: the comparison with the double reference, or
// the shim itself, must tell. What is planted here in the codes stands in for mistakes in the
// source.
#include <gtest/gtest.h>

#include "cuda/decode.h"
#include "cuda/decode_core.h"
#include "cuda/decode_mma.h"
#include "simt/decode_run.h"

namespace kvant::simt {
namespace {

constexpr int kDim = 64;

struct WrongMask : cuda::Int4Codes {
  static void Unpack(const uint32_t* words, int fragment, uint32_t (&a)[4]) {
    cuda::Int4Codes::Unpack(words, fragment, a);
    a[2] = cuda::AndOr<0x00070007, cuda::kMagic>(words[fragment] >> 8);  // three bits of four
  }
};
struct WrongZero : cuda::Int4Codes {
  static void Unpack(const uint32_t* words, int fragment, uint32_t (&a)[4]) {
    cuda::Int4Codes::Unpack(words, fragment, a);
    for (uint32_t& halves : a) halves += 0x00080008;  // 1032 instead of 1024
  }
};
struct WrongOrder : cuda::Int4Codes {
  static void Unpack(const uint32_t* words, int fragment, uint32_t (&a)[4]) {
    cuda::Int4Codes::Unpack(words, fragment, a);
    std::swap(a[0], a[2]);
  }
};
struct WrongWeight : cuda::Int2Codes {
  static constexpr int kPairWeight = 1;
  static void MakeExact(uint32_t (&a)[4]) {
    a[0] = cuda::HalfSub2(a[0], cuda::kMagic);
    a[1] = cuda::HalfFma2(a[1], cuda::k16th, cuda::kMinusMagic16th);
    a[2] = cuda::HalfSub2(a[2], cuda::kMagic);
    a[3] = cuda::HalfFma2(a[3], cuda::k64th, cuda::kMinusMagic64th);
  }
};
struct WrongSign : cuda::E4M3Codes {
  static void Unpack(const uint32_t* words, int fragment, uint32_t (&a)[4]) {
    cuda::E4M3Codes::Unpack(words, fragment, a);
    a[3] &= 0x7fffffff;  // of one code
  }
};
struct WrongNibbles : cuda::LevelCodes {
  void Unpack(const uint32_t* words, int fragment, uint32_t (&a)[4]) const {
    cuda::LevelCodes::Unpack(words, fragment, a);
    a[2] = a[2] >> 16 | a[2] << 16;
  }
};
struct WrongRows : cuda::Int4Codes {
  static constexpr int kRowWeight = 1;
};
struct Right4 : cuda::Int4Codes {};
struct Right2 : cuda::Int2Codes {};

// Outputs of earlier pages keep their weight when the maximum rises.
template <typename Codes, int kHeadDim, int kCount>
struct NoRescale : cuda::MmaDecode<Codes, kHeadDim, kCount> {
  using Base = cuda::MmaDecode<Codes, kHeadDim, kCount>;
  using Base::Base;
  void AddPage(const cuda::Split& split, int page) {
    const auto stored = cuda::StoredPage::Of<Codes::kPage, kHeadDim>(this->args, split, page);
    const cuda::Visible visible = cuda::Visible::Of(split, page);
    float offset[kCount][2] = {}, decay[kCount][2];
    this->Score(stored, offset);
    if (!visible.all()) this->Hide(visible);
    this->Softmax(offset, decay);
    for (auto& of_tile : decay) of_tile[0] = of_tile[1] = 1;
    this->AddValues(stored, visible, decay);
  }
};

template <template <typename, int, int> class Way, typename KCodes, typename VCodes = KCodes>
double Worst(const PlantedFault& fault = {}, Schedule schedule = Schedule::kRoundRobin) {
  using Codes = cuda::Sides<KCodes, VCodes>;
  constexpr bool kTensorCores =
      !std::is_same_v<Way<Codes, kDim, 1>, cuda::CoreDecode<Codes, kDim, 1>>;
  // Nine pages: each warp of the first split has one.
  const DecodeWorld world(Codes::kPage, kDim, 1, {{0, 520}, {130, 191}}, 6);
  LaunchOptions options;
  options.schedule = schedule;
  options.seed = 1;
  options.fault = fault;
  const Decoded run =
      Decode([](const cuda::DecodeArguments& args) { cuda::DecodeRow<Way, Codes, kDim, 1>(args); },
             world, options);
  if (!run.fault.empty()) return INFINITY;
  return WorstOf(run.out, DecodeBound(world, kTensorCores).Make());
}

TEST(PlantedFaults, WithoutOneTheBoundHolds) {
  EXPECT_LE((Worst<cuda::CoreDecode, Right4>()), 1);
  EXPECT_LE((Worst<cuda::MmaDecode, Right4>()), 1);
  EXPECT_LE((Worst<cuda::CoreDecode, Right2>()), 1);
  EXPECT_LE((Worst<cuda::MmaDecode, Right2>()), 1);
  EXPECT_LE((Worst<cuda::CoreDecode, cuda::E4M3Codes>()), 1);
  EXPECT_LE((Worst<cuda::MmaDecode, cuda::E4M3Codes>()), 1);
  EXPECT_LE((Worst<cuda::CoreDecode, cuda::LevelCodes>()), 1);
  EXPECT_LE((Worst<cuda::MmaDecode, cuda::LevelCodes>()), 1);
  EXPECT_LE((Worst<cuda::MmaDecode, cuda::Int8Codes, cuda::Int4Codes>()), 1);
}

template <typename Codes>
void ExpectSeenByBothWays() {
  EXPECT_GT((Worst<cuda::CoreDecode, Codes>()), 1);
  EXPECT_GT((Worst<cuda::MmaDecode, Codes>()), 1);
}
TEST(PlantedFaults, NibbleMaskIsSeen) { ExpectSeenByBothWays<WrongMask>(); }
TEST(PlantedFaults, ZeroConstantIsSeen) { ExpectSeenByBothWays<WrongZero>(); }
TEST(PlantedFaults, FragmentOrderIsSeen) { ExpectSeenByBothWays<WrongOrder>(); }
TEST(PlantedFaults, Int2ScaleIsSeen) { ExpectSeenByBothWays<WrongWeight>(); }
TEST(PlantedFaults, E4M3SignIsSeen) { ExpectSeenByBothWays<WrongSign>(); }
TEST(PlantedFaults, OrderOfNibblesIsSeen) { ExpectSeenByBothWays<WrongNibbles>(); }
TEST(PlantedFaults, WeightOfVsRowsIsSeen) {
  EXPECT_GT((Worst<cuda::MmaDecode, cuda::Int8Codes, WrongRows>()), 1);
}

TEST(PlantedFaults, MissingRescaleIsSeen) { EXPECT_GT((Worst<NoRescale, Right4>()), 1); }

TEST(PlantedFaults, ShuffleDistanceIsSeen) {
  for (const int mask : {1, 2, 4, 8, 16}) {
    const PlantedFault fault{.xor_mask = mask, .wrong_xor_mask = mask == 16 ? 1 : mask * 2};
    EXPECT_GT((Worst<cuda::CoreDecode, Right4>(fault)), 1) << mask;
    if (mask < 4) continue;  // of the other kernel only
    EXPECT_GT((Worst<cuda::MmaDecode, Right4>(fault)), 1) << mask;
  }
}

// A kernel has 6 barriers: queries stored (0), states stored (1), and one behind each warp's turn
// to add its output (2 .. 5). The shim does not interleave what two warps do between meetings, so
// that additions of neighbours in turn come out right without 3 and 4 between them: not tested.
TEST(PlantedFaults, DroppedBarriersAreSeenBySomeSchedule) {
  for (const int barrier : {0, 1, 2, 5}) {
    const PlantedFault fault{.dropped_barrier = barrier};
    double worst = 0;
    for (const Schedule schedule :
         {Schedule::kRoundRobin, Schedule::kRandom, Schedule::kRunAhead}) {
      worst = std::max(worst, Worst<cuda::CoreDecode, Right4>(fault, schedule));
    }
    EXPECT_GT(worst, 1) << "barrier " << barrier;
  }
}

}  // namespace
}  // namespace kvant::simt
