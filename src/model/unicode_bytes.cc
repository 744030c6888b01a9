#include "model/unicode_bytes.h"

#include <array>

namespace kvant {
namespace {

constexpr uint32_t kFirstMoved = 0x100;
constexpr uint32_t kMovedBytes = 68;  // 33 up to the space, 34 from DEL to NBSP, the soft hyphen

constexpr bool IsPrintable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

struct Tables {
  std::array<uint32_t, 256> from_byte{};
  std::array<int, kFirstMoved + kMovedBytes> to_byte{};
};

constexpr Tables MakeTables() {
  Tables tables;
  for (int& byte : tables.to_byte) byte = -1;
  uint32_t moved = kFirstMoved;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t stand_in = IsPrintable(byte) ? byte : moved++;
    tables.from_byte[byte] = stand_in;
    tables.to_byte[stand_in] = static_cast<int>(byte);
  }
  return tables;
}

constexpr Tables kTables = MakeTables();
static_assert(kTables.from_byte[0xad] == kFirstMoved + kMovedBytes - 1);

// Bytes that may follow the lead byte directly: tighter than 80..BF where the lead alone would
// admit overlong forms, surrogates or values past U+10FFFF.
struct Range {
  uint8_t low, high;
};

constexpr Range SecondByteRange(uint8_t lead) {
  switch (lead) {
    case 0xe0:
      return {0xa0, 0xbf};
    case 0xed:
      return {0x80, 0x9f};
    case 0xf0:
      return {0x90, 0xbf};
    case 0xf4:
      return {0x80, 0x8f};
    default:
      return {0x80, 0xbf};
  }
}

}  // namespace

Utf8Char ReadUtf8(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {Utf8Kind::kComplete, 1, lead};
  if (lead < 0xc2 || lead > 0xf4) return {Utf8Kind::kInvalid, 1, 0};
  const int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  uint32_t code_point = lead & (0x7fu >> length);
  Range range = SecondByteRange(lead);
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) == text.size()) return {Utf8Kind::kIncomplete, i, 0};
    const auto byte = static_cast<uint8_t>(text[static_cast<size_t>(i)]);
    if (byte < range.low || byte > range.high) return {Utf8Kind::kInvalid, i, 0};
    code_point = code_point << 6 | (byte & 0x3fu);
    range = {0x80, 0xbf};
  }
  return {Utf8Kind::kComplete, length, code_point};
}

void AppendUtf8(uint32_t code_point, std::string& out) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto put_tail = [&](int shift) { put(0x80 | (code_point >> shift & 0x3f)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | code_point >> 6);
    put_tail(0);
  } else if (code_point < 0x10000) {
    put(0xe0 | code_point >> 12);
    put_tail(6);
    put_tail(0);
  } else {
    put(0xf0 | code_point >> 18);
    put_tail(12);
    put_tail(6);
    put_tail(0);
  }
}

uint32_t ByteStandIn(uint8_t byte) { return kTables.from_byte[byte]; }

int StandInByte(uint32_t code_point) {
  return code_point < kTables.to_byte.size() ? kTables.to_byte[code_point] : -1;
}

std::optional<std::string> SpellingToBytes(std::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  while (!spelling.empty()) {
    const Utf8Char c = ReadUtf8(spelling);
    if (c.kind != Utf8Kind::kComplete) return std::nullopt;
    const int byte = StandInByte(c.code_point);
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    spelling.remove_prefix(static_cast<size_t>(c.bytes));
  }
  return bytes;
}

std::string Beginning(std::string_view text) {
  constexpr int kCharacters = 40;
  std::string out;
  for (int i = 0; i < kCharacters && !text.empty(); ++i) {
    const Utf8Char c = ReadUtf8(text);
    const auto length = static_cast<size_t>(c.bytes);
    const bool printable = c.kind == Utf8Kind::kComplete && c.code_point >= ' ';
    out += printable ? text.substr(0, length) : " ";
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace kvant
