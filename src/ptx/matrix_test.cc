// Fragments as the PTX manual draws them: groupID = lane / 4, threadID_in_group = lane % 4.
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <random>

#include "base/float16.h"
#include "ptx/kernel_for_test.h"

namespace kvant::ptx {
namespace {

// Element i of a lane's A, B or C fragment: its row and column in the matrix.
struct Position {
  int row, column;
};
using Layout = std::function<Position(int lane, int i)>;

// .f16, k = 16
Position A16(int lane, int i) {
  return {lane / 4 + ((i < 2 || (i >= 4 && i < 6)) ? 0 : 8),
          lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
Position B16(int lane, int i) { return {lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), lane / 4}; }
// .f16, k = 8
Position A8(int lane, int i) { return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)}; }
Position B8(int lane, int i) { return {lane % 4 * 2 + i, lane / 4}; }
// .s8, k = 32
Position A32(int lane, int i) {
  return {lane / 4 + ((i < 4 || (i >= 8 && i < 12)) ? 0 : 8),
          lane % 4 * 4 + (i & 3) + (i < 8 ? 0 : 16)};
}
Position B32(int lane, int i) { return {lane % 4 * 4 + (i & 3) + (i < 4 ? 0 : 16), lane / 4}; }
// .s8, k = 16
Position A16s8(int lane, int i) { return {lane / 4 + (i < 4 ? 0 : 8), lane % 4 * 4 + (i & 3)}; }
Position B16s8(int lane, int i) { return {lane % 4 * 4 + i, lane / 4}; }

Position C(int lane, int i) { return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)}; }

// Integers small enough that every sum is exact, whatever the order.
struct Product {
  std::vector<int> a, b, c;  // [16][k], [k][8], [16][8]
  int k;

  explicit Product(int depth, int lowest, int highest) : k(depth) {
    std::mt19937 random(static_cast<uint32_t>(depth));
    const auto fill = [&](std::vector<int>* matrix, int size) {
      matrix->resize(static_cast<size_t>(size));
      for (int& value : *matrix) {
        value = lowest + static_cast<int>(random() % static_cast<uint32_t>(highest - lowest + 1));
      }
    };
    fill(&a, 16 * k);
    fill(&b, k * 8);
    fill(&c, 16 * 8);
  }
  int d(int row, int column) const {
    int sum = c[static_cast<size_t>(row * 8 + column)];
    for (int i = 0; i < k; ++i) {
      sum += a[static_cast<size_t>(row * k + i)] * b[static_cast<size_t>(i * 8 + column)];
    }
    return sum;
  }
};

constexpr size_t kLaneWords = 12;  // of a lane's input: A from 0, B from 4, C from 8

// Packs `count` elements of `bits` bits into a lane's words from `first` on.
void Pack(std::vector<uint32_t>* in, size_t first, int lane, int count, int bits,
          const std::function<uint32_t(int)>& element) {
  for (int i = 0; i < count; ++i) {
    const uint32_t value = element(i) & (bits == 32 ? 0xffffffffu : (1u << bits) - 1);
    (*in)[static_cast<size_t>(lane) * kLaneWords + first + static_cast<size_t>(i * bits / 32)] |=
        value << (i * bits % 32);
  }
}

// D's registers of every lane, [32][4].
std::vector<uint32_t> Multiply(const std::string& mma, const std::vector<uint32_t>& in) {
  std::vector<uint32_t> out(32 * 4);
  const TestRun run = RunBody(R"(
  mul.wide.u32 %d0, %t, 48;
  add.s64 %d0, %in, %d0;
  ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d0];
  ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%d0+16];
  ld.global.v4.b32 {%r11, %r12, %r13, %r14}, [%d0+32];
  )" + mma + R"(
  mul.wide.u32 %d1, %t, 16;
  add.s64 %d1, %out, %d1;
  st.global.v4.b32 [%d1], {%r11, %r12, %r13, %r14};)",
                              in, &out);
  EXPECT_EQ(run.fault, "");
  return out;
}

uint32_t FloatBits(int value) { return std::bit_cast<uint32_t>(static_cast<float>(value)); }
uint32_t HalfBits(int value) { return F32ToF16(static_cast<float>(value)); }

TEST(PtxMatrix, F16WithF32Sums) {
  struct Case {
    int k, a_count, b_count;
    Layout a, b;
    std::string mma;
  };
  const Case cases[] = {
      {16, 8, 4, A16, B16,
       "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r11, %r12, %r13, %r14}, "
       "{%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r11, %r12, %r13, %r14};"},
      {8, 4, 2, A8, B8,
       "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r11, %r12, %r13, %r14}, "
       "{%r1, %r2}, {%r5}, {%r11, %r12, %r13, %r14};"},
  };
  for (const Case& c : cases) {
    const Product product(c.k, -9, 9);
    std::vector<uint32_t> in(32 * kLaneWords);
    for (int lane = 0; lane < 32; ++lane) {
      Pack(&in, 0, lane, c.a_count, 16, [&](int i) {
        const Position at = c.a(lane, i);
        return HalfBits(product.a[static_cast<size_t>(at.row * c.k + at.column)]);
      });
      Pack(&in, 4, lane, c.b_count, 16, [&](int i) {
        const Position at = c.b(lane, i);
        return HalfBits(product.b[static_cast<size_t>(at.row * 8 + at.column)]);
      });
      Pack(&in, 8, lane, 4, 32, [&](int i) {
        const Position at = C(lane, i);
        return FloatBits(product.c[static_cast<size_t>(at.row * 8 + at.column)]);
      });
    }
    const auto out = Multiply(c.mma, in);
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const Position at = C(lane, i);
        ASSERT_EQ(out[static_cast<size_t>(lane * 4 + i)], FloatBits(product.d(at.row, at.column)))
            << c.k << " lane " << lane << " element " << i;
      }
    }
  }
}

TEST(PtxMatrix, F16WithF16Sums) {
  const Product product(16, -9, 9);
  std::vector<uint32_t> in(32 * kLaneWords);
  for (int lane = 0; lane < 32; ++lane) {
    Pack(&in, 0, lane, 8, 16, [&](int i) {
      const Position at = A16(lane, i);
      return HalfBits(product.a[static_cast<size_t>(at.row * 16 + at.column)]);
    });
    Pack(&in, 4, lane, 4, 16, [&](int i) {
      const Position at = B16(lane, i);
      return HalfBits(product.b[static_cast<size_t>(at.row * 8 + at.column)]);
    });
    Pack(&in, 8, lane, 4, 16, [&](int i) {
      const Position at = C(lane, i);
      return HalfBits(product.c[static_cast<size_t>(at.row * 8 + at.column)]);
    });
  }
  const auto out = Multiply(
      "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r11, %r12}, {%r1, %r2, %r3, %r4}, "
      "{%r5, %r6}, {%r11, %r12};",
      in);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Position at = C(lane, i);
      ASSERT_EQ(out[static_cast<size_t>(lane * 4 + i / 2)] >> (i % 2 * 16) & 0xffff,
                HalfBits(product.d(at.row, at.column)));
    }
  }
}

TEST(PtxMatrix, BytesWithTheirSigns) {
  struct Case {
    int k, lowest, highest, a_count;
    Layout a, b;
    std::string mma;
  };
  const std::string deep =
      "{%r11, %r12, %r13, %r14}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, "
      "{%r11, %r12, %r13, %r14};";
  const std::string shallow =
      "{%r11, %r12, %r13, %r14}, {%r1, %r2}, {%r5}, {%r11, %r12, %r13, %r14};";
  const Case cases[] = {
      {32, -128, 127, 16, A32, B32, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 " + deep},
      {32, 0, 255, 16, A32, B32, "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 " + deep},
      {16, -128, 127, 8, A16s8, B16s8,
       "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 " + shallow},
  };
  for (const Case& c : cases) {
    const Product product(c.k, c.lowest, c.highest);
    std::vector<uint32_t> in(32 * kLaneWords);
    for (int lane = 0; lane < 32; ++lane) {
      Pack(&in, 0, lane, c.a_count, 8, [&](int i) {
        const Position at = c.a(lane, i);
        return static_cast<uint32_t>(product.a[static_cast<size_t>(at.row * c.k + at.column)]);
      });
      Pack(&in, 4, lane, c.a_count / 2, 8, [&](int i) {
        const Position at = c.b(lane, i);
        return static_cast<uint32_t>(product.b[static_cast<size_t>(at.row * 8 + at.column)]);
      });
      Pack(&in, 8, lane, 4, 32, [&](int i) {
        const Position at = C(lane, i);
        return static_cast<uint32_t>(product.c[static_cast<size_t>(at.row * 8 + at.column)]);
      });
    }
    const auto out = Multiply(c.mma, in);
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const Position at = C(lane, i);
        ASSERT_EQ(static_cast<int>(out[static_cast<size_t>(lane * 4 + i)]),
                  product.d(at.row, at.column))
            << c.mma;
      }
    }
  }
}

// Loads four 8 x 8 matrices whose element (r, c) of matrix i is 64 i + 8 r + c.
TEST(PtxMatrix, LoadsRowsAndTransposes) {
  for (const bool transposed : {false, true}) {
    std::vector<uint16_t> in(256);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
    std::vector<uint32_t> out(32 * 4);
    const std::string body = std::string(R"(
  mov.u32 %r1, tile;
  mad.lo.u32 %r2, %t, 16, %r1;
  mul.wide.u32 %d0, %t, 16;
  add.s64 %d1, %in, %d0;
  add.s64 %d2, %out, %d0;
  ld.global.v4.b32 {%r3, %r4, %r5, %r6}, [%d1];
  st.shared.v4.b32 [%r2], {%r3, %r4, %r5, %r6};
  bar.warp.sync -1;
  ldmatrix.sync.aligned.m8n8.x4)") +
                             (transposed ? ".trans" : "") +
                             R"(.shared.b16 {%r7, %r8, %r9, %r10}, [%r2];
  st.global.v4.b32 [%d2], {%r7, %r8, %r9, %r10};)";
    const TestRun run =
        RunText(KernelText(body, ".shared .align 16 .b8 tile[512];"), in, &out, {.block = {32}});
    ASSERT_EQ(run.fault, "");
    for (uint32_t lane = 0; lane < 32; ++lane) {
      for (uint32_t matrix = 0; matrix < 4; ++matrix) {
        const uint32_t row = lane / 4, column = lane % 4 * 2;
        const uint32_t step = transposed ? 8 : 1;
        const uint32_t first = 64 * matrix + (transposed ? 8 * column + row : 8 * row + column);
        EXPECT_EQ(out[lane * 4 + matrix], first | (first + step) << 16);
      }
    }
  }
}

TEST(PtxMatrix, TransposesRegisters) {
  std::vector<uint32_t> out(32);
  const TestRun run = RunBody(R"(
  mad.lo.u32 %r1, %t, 2, 1;
  shl.b32 %r1, %r1, 16;
  mad.lo.u32 %r1, %t, 2, %r1;                 // elements 2 t and 2 t + 1, so 8 row + column
  movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;
  add.s64 %d1, %out, %t4;
  st.global.u32 [%d1], %r0;)",
                              out, &out);
  ASSERT_EQ(run.fault, "");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = lane / 4, column = lane % 4 * 2;
    EXPECT_EQ(out[lane], (8 * column + row) | (8 * (column + 1) + row) << 16);
  }
}

TEST(PtxMatrix, NeedsTheWholeWarp) {
  std::vector<uint32_t> out(1);
  const std::string mma =
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r11, %r12, %r13, %r14}, "
      "{%r1, %r2}, {%r5}, {%r11, %r12, %r13, %r14};";
  const std::string zeros =
      "mov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r5, 0; mov.b32 %r11, 0;"
      "mov.b32 %r12, 0; mov.b32 %r13, 0; mov.b32 %r14, 0;";
  EXPECT_EQ(RunBody(zeros + mma, out, &out).fault, "");
  EXPECT_FAULT(RunBody(zeros + mma, out, &out, {.block = {16}}), "not running any more");
  EXPECT_FAULT(RunBody(zeros + "setp.lt.u32 %p1, %t, 8; @%p1 " + mma + " bar.sync 0;", out, &out),
               "divergence: 32 lanes from 0 wait");
  EXPECT_FAULT(RunBody(mma, out, &out), "%r1 is read before it is written");
  EXPECT_FAULT(
      RunBody("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r11, %r12, %r13, %r14}, "
              "{%r1, %r2}, {%r5}, {%r11, %r12, %r13, %r14};",
              out, &out),
      "another number of registers");
}

}  // namespace
}  // namespace kvant::ptx
