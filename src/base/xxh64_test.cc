#include "base/xxh64.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace kvant {
namespace {

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span<const char>(text));
}

// Figures of the published algorithm; lengths below, at and beyond a stripe of 32 bytes.
TEST(Xxh64, IsThePublishedHash) {
  const auto hash = [](std::string_view text) { return Xxh64(BytesOf(text)); };
  EXPECT_EQ(hash(""), 0xef46db3751d8e999u);
  EXPECT_EQ(hash("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(hash("asdf"), 0x415872f599cea71eu);
  EXPECT_EQ(hash("xxhash"), 0x32dd38952c4bc720u);
  EXPECT_EQ(hash("Call me Ishmael. Some years ago--never mind how long precisely-"),
            0x02a2e85470d6fd96u);
}

TEST(Xxh64, PiecesOfAnySizeGiveTheHashOfTheWhole) {
  const std::string_view text =
      "Call me Ishmael. Some years ago--never mind how long precisely-, having little or no money";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    Xxh64Stream stream;
    for (size_t at = 0; at < text.size(); at += piece) {
      stream.Add(BytesOf(text.substr(at, piece)));
      EXPECT_EQ(stream.Hash(), Xxh64(BytesOf(text.substr(0, std::min(at + piece, text.size())))));
    }
  }
}

}  // namespace
}  // namespace kvant
