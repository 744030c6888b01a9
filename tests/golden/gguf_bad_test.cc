// GGUF files that must be refused: each with the error that names the field, none with a crash or
// an allocation that the file's own size does not justify.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/exercise_for_test.h"
#include "gguf/gguf_file.h"
#include "gguf/gguf_writer.h"

namespace kvant {
namespace {

// File bytes without any check, so that every field can lie.
template <typename T>
std::string Number(T number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof number);
}
std::string U32(uint32_t number) { return Number(number); }
std::string U64(uint64_t number) { return Number(number); }
std::string Str(std::string_view text) { return U64(text.size()) + std::string(text); }
std::string Entry(std::string_view key, GgufValueType type, const std::string& payload) {
  return Str(key) + U32(static_cast<uint32_t>(type)) + payload;
}
std::string Array(GgufValueType type, uint64_t count, const std::string& payload) {
  return U32(static_cast<uint32_t>(type)) + U64(count) + payload;
}

struct RawTensor {
  std::string name = "w";
  uint32_t n_dims = 1;
  std::vector<uint64_t> dims = {8};
  uint32_t type = 0;
  uint64_t offset = 0;
};

struct RawFile {
  uint32_t magic = kGgufMagic;
  uint32_t version = 3;
  std::vector<std::string> entries = {};
  std::vector<RawTensor> tensors = {};
  size_t data_bytes = 32;
  std::optional<uint64_t> entry_count = {}, tensor_count = {};  // when they lie

  std::string Bytes() const {
    std::string bytes = U32(magic) + U32(version) + U64(tensor_count.value_or(tensors.size())) +
                        U64(entry_count.value_or(entries.size()));
    for (const std::string& entry : entries) bytes += entry;
    for (const RawTensor& t : tensors) {
      bytes += Str(t.name) + U32(t.n_dims);
      for (const uint64_t dim : t.dims) bytes += U64(dim);
      bytes += U32(t.type) + U64(t.offset);
    }
    bytes.resize((bytes.size() + 31) / 32 * 32 + data_bytes, '\x11');
    return bytes;
  }
};

// Parses a copy that ends exactly where the bytes end, so that a sanitizer sees any step beyond.
Status ParseExactly(std::string_view bytes) {
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  const auto file = GgufFile::Parse({copy.get(), bytes.size()});
  if (file.ok()) ExerciseGguf(*file);
  return file.ok() ? Status::Ok() : file.status();
}

void ExpectRefused(const RawFile& raw, const std::string& message,
                   StatusCode code = StatusCode::kCorrupt) {
  const Status status = ParseExactly(raw.Bytes());
  EXPECT_EQ(status.code(), code);
  EXPECT_EQ(status.message(), message);
}

TEST(BadGguf, TheFileThatTheCasesBendIsGood) {
  EXPECT_EQ(ParseExactly(RawFile{.tensors = {RawTensor{}}}.Bytes()).message(), "");
  EXPECT_EQ(ParseExactly(RawFile{.version = 2, .tensors = {RawTensor{}}}.Bytes()).message(), "");
}

TEST(BadGguf, HeadsThatAreNotOfThisFormat) {
  ExpectRefused({.magic = 0x46554746}, "the file does not start with 'GGUF'");
  ExpectRefused({.version = 1}, "GGUF version 1 cannot be read, only 2 and 3",
                StatusCode::kUnsupported);
  ExpectRefused({.version = 4}, "GGUF version 4 cannot be read, only 2 and 3",
                StatusCode::kUnsupported);
  ExpectRefused({.version = 0x03000000}, "the file is big endian, only little endian can be read",
                StatusCode::kUnsupported);
}

TEST(BadGguf, CountsThatTheFileCannotHold) {
  ExpectRefused({.tensor_count = uint64_t{1} << 62},
                "the tensor count is 4611686018427387904, more than the 1048576 allowed");
  ExpectRefused({.entry_count = ~uint64_t{0}},
                "the metadata count is 18446744073709551615, more than the 65536 allowed");
  ExpectRefused({.entry_count = 65536},
                "the metadata claims 65536 elements, but only 40 bytes are left in the file");
  ExpectRefused({.tensor_count = 1048576},
                "the tensor list claims 1048576 elements, but only 40 bytes are left in the file");
}

TEST(BadGguf, KeysThatAreEmptyHugeOrTwice) {
  const auto u8 = GgufValueType::kU8;
  ExpectRefused({.entries = {Entry("", u8, "\1")}}, "metadata key 0 is empty");
  ExpectRefused({.entries = {Entry("a", u8, "\1"), U64(uint64_t{1} << 48) + "key" + U32(0) + "x"}},
                "metadata key 1 claims a length of 281474976710656 bytes, more than the 65535 "
                "allowed");
  ExpectRefused({.entries = {Entry("a", u8, "\1"), Entry("b", u8, "\1"), Entry("a", u8, "\2")}},
                "key 'a' occurs twice");
}

TEST(BadGguf, ValuesThatLie) {
  using enum GgufValueType;
  const std::string one("\1\0\0\0\0\0\0\0", 8);
  ExpectRefused({.entries = {Str("k") + U32(13) + one}}, "key 'k' has the unknown value type 13");
  ExpectRefused({.entries = {Entry("k", kArray, U32(77) + U64(1) + one)}},
                "key 'k' is an array of the unknown value type 77");
  ExpectRefused({.entries = {Entry("k", kBool, "\2")}},
                "key 'k' holds the bool 2, which is neither 0 nor 1");
  ExpectRefused({.entries = {Entry("k", kString, U64(uint64_t{1} << 48))}},
                "key 'k' claims a length of 281474976710656 bytes, more than the 67108864 allowed");
  ExpectRefused({.entries = {Entry("k", kString, U64(5000))}},
                "the file ends after 96 bytes, inside key 'k'");
  // Counts whose product with the element size wraps around, and counts of strings and arrays.
  ExpectRefused({.entries = {Entry("k", kArray, Array(kU64, (uint64_t{1} << 61) + 1, one))}},
                "key 'k' claims 2305843009213693953 elements, but only 47 bytes are left in the "
                "file");
  ExpectRefused({.entries = {Entry("k", kArray, Array(kString, uint64_t{1} << 40, ""))}},
                "key 'k' claims 1099511627776 elements, but only 47 bytes are left in the file");
  ExpectRefused({.entries = {Entry("k", kArray, Array(kArray, uint64_t{1} << 40, ""))}},
                "key 'k' claims 1099511627776 elements, but only 47 bytes are left in the file");
}

TEST(BadGguf, ArraysNestedWithoutEnd) {
  using enum GgufValueType;
  const auto nested = [](int depth) {
    std::string array;
    for (int i = 1; i < depth; ++i) array += Array(kArray, 1, "");
    return RawFile{.entries = {Entry("k", kArray, array + Array(kU8, 1, "\1"))}};
  };
  EXPECT_TRUE(ParseExactly(nested(4).Bytes()).ok());
  ExpectRefused(nested(5), "key 'k' nests arrays deeper than 4");
  ExpectRefused(nested(100000), "key 'k' nests arrays deeper than 4");
}

TEST(BadGguf, AlignmentsThatCannotBe) {
  const auto file = [](uint32_t alignment) {
    return RawFile{.entries = {Entry("general.alignment", GgufValueType::kU32, U32(alignment))}};
  };
  for (const uint32_t bad : {0u, 1u, 4u, 24u, 33u, 0xffffffffu}) {
    ExpectRefused(file(bad), "key 'general.alignment' holds " + std::to_string(bad) +
                                 ", which is not a power of two of at least 8");
  }
  EXPECT_TRUE(ParseExactly(file(64).Bytes()).ok());
  EXPECT_TRUE(ParseExactly(file(0x80000000u).Bytes()).ok());  // no tensors, so nothing to place
  ExpectRefused({.entries = {Entry("general.alignment", GgufValueType::kString, Str("32"))}},
                "key 'general.alignment' holds string where an integer is wanted");
  RawFile far = file(0x80000000u);
  far.tensors = {RawTensor{}};
  ExpectRefused(far,
                "tensor 'w' needs 32 bytes at offset 0, but the file holds 0 bytes of tensor data");
}

TEST(BadGguf, TensorNamesThatAreEmptyLongOrTwice) {
  ExpectRefused({.tensors = {{.name = ""}}}, "the name of tensor 0 is empty");
  ExpectRefused({.tensors = {{.name = std::string(65, 'n')}}},
                "the name of tensor 0 claims a length of 65 bytes, more than the 64 allowed");
  ExpectRefused({.tensors = {{.name = "a"}, {.name = "b"}, {.name = "a"}}},
                "tensor 'a' occurs twice");
}

TEST(BadGguf, ShapesThatCannotBe) {
  constexpr uint64_t kHuge = uint64_t{1} << 32;
  ExpectRefused({.tensors = {{.n_dims = 0, .dims = {}}}},
                "tensor 'w' has 0 dimensions, which is not in 1..4");
  ExpectRefused({.tensors = {{.n_dims = 5, .dims = {1, 1, 1, 1, 1}}}},
                "tensor 'w' has 5 dimensions, which is not in 1..4");
  ExpectRefused({.tensors = {{.n_dims = 0xffffffff}}},
                "tensor 'w' has 4294967295 dimensions, which is not in 1..4");
  ExpectRefused({.tensors = {{.n_dims = 2, .dims = {8, 0}}}}, "tensor 'w' has a dimension of 0");
  ExpectRefused({.tensors = {{.dims = {uint64_t{1} << 63}}}},
                "tensor 'w' has the dimension 9223372036854775808, which is too large");
  ExpectRefused({.tensors = {{.n_dims = 2, .dims = {kHuge, kHuge}}}},
                "tensor 'w' has more elements than 64 bits can count");
  ExpectRefused({.tensors = {{.n_dims = 2, .dims = {kHuge, kHuge / 4}}}},
                "tensor 'w' has more bytes than 64 bits can count");
  ExpectRefused({.tensors = {{.type = 14}}},  // Q6_K
                "tensor 'w' has rows of 8 values, not whole Q6_K blocks of 256");
  // Whole blocks in all, but not in a row.
  ExpectRefused({.tensors = {{.n_dims = 2, .dims = {16, 2}, .type = 2}}},
                "tensor 'w' has rows of 16 values, not whole Q4_0 blocks of 32");
}

TEST(BadGguf, TensorTypesThatDoNotExist) {
  for (const uint32_t type : {4u, 9u, 36u, 1000u, 0xffffffffu}) {
    ExpectRefused({.tensors = {{.type = type}}},
                  "tensor 'w' has the unknown type " + std::to_string(type),
                  StatusCode::kUnsupported);
  }
}

TEST(BadGguf, TensorsOutsideTheFile) {
  ExpectRefused({.tensors = {{.offset = 4}}},
                "tensor 'w' has the offset 4, which is not a multiple of the alignment 32");
  ExpectRefused({.tensors = {{.offset = 32}}},
                "tensor 'w' needs 32 bytes at offset 32, but the file holds 32 bytes of tensor "
                "data");
  ExpectRefused(
      {.tensors = {{.dims = {9}}}},
      "tensor 'w' needs 36 bytes at offset 0, but the file holds 32 bytes of tensor data");
  // An offset whose sum with the size, or with the start of the data, wraps around.
  ExpectRefused({.tensors = {{.offset = ~uint64_t{0} - 31}}},
                "tensor 'w' needs 32 bytes at offset 18446744073709551584, but the file holds 32 "
                "bytes of tensor data");
}

TEST(BadGguf, MessagesEscapeWhatTheFileSays) {
  ExpectRefused({.tensors = {{.name = "a\n\x1b[31m", .type = 99}}},
                "tensor 'a\\x0a\\x1b[31m' has the unknown type 99", StatusCode::kUnsupported);
}

// Every part of the format once; the last tensor has no padding after it.
std::string ValidFile() {
  const std::string_view tokens[] = {"a", "", "bcd"};
  const int32_t types[] = {1, 2, 3};
  const std::vector<int64_t> vector{8}, matrix{32, 2}, super{256};
  const std::vector<std::byte> floats(32, std::byte{0x3f}), q4_1(40, std::byte{0x21}),
      q6_k(210 + 14, std::byte{0x15});
  GgufWriter writer;
  EXPECT_TRUE(writer.AddString("general.architecture", "toy").ok());
  EXPECT_TRUE(writer.AddU32("general.alignment", 16).ok());
  EXPECT_TRUE(writer.AddBool("flag", true).ok());
  EXPECT_TRUE(writer.AddStringArray("tokens", tokens).ok());
  EXPECT_TRUE(writer.AddI32Array("types", types).ok());
  EXPECT_TRUE(writer.AddTensor("q6", WeightType::kQ6_K, super, std::span(q6_k).first(210)).ok());
  EXPECT_TRUE(writer.AddTensor("q4", WeightType::kQ4_1, matrix, q4_1).ok());
  EXPECT_TRUE(writer.AddTensor("norm", WeightType::kF32, vector, floats).ok());
  const auto bytes = writer.ToBytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(BadGguf, FileCutAtEveryByteIsRefused) {
  const std::string whole = ValidFile();
  ASSERT_TRUE(ParseExactly(whole).ok());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const Status status = ParseExactly(whole.substr(0, bytes));
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << "cut after " << bytes << " bytes";
    ASSERT_NE(status.message(), "");
  }
}

TEST(BadGguf, AnyByteChangedIsReadOrRefused) {
  const std::string whole = ValidFile();
  int refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int flip : {0x01, 0x02, 0x10, 0x40, 0x80, 0xff}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      const Status status = ParseExactly(changed);
      if (!status.ok()) ++refused;
      ASSERT_EQ(status.ok(), status.message().empty());
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace kvant
