// FP8 and FP4 arrays in the order of the published formats. Only the place of elements and scales
// differs from a page: format/page_layout.h.
#include <cstring>
#include <string>

#include "codec/code_place.h"
#include "kvant/codec.h"

namespace kvant {
namespace {

// One page of an array.
class Page {
 public:
  Page(const Format& format, Side side, int head_dim) : tokens_(ArrayPageTokens(format)) {
    const PageLayout layout = MakePageLayout(format, format, head_dim, tokens_);
    side_ = side == Side::kK ? layout.k : layout.v;
  }
  int tokens() const { return tokens_; }
  const SideLayout& side() const { return side_; }
  int codes_in_byte() const { return 8 / side_.format.bits; }
  int code_bytes_per_token() const { return side_.head_dim / codes_in_byte(); }
  int scale_bytes_per_token() const { return side_.channel_groups * side_.scale_bytes; }

 private:
  int tokens_;
  SideLayout side_;
};

void ExportToken(const Page& page, const std::byte* stored, int token, std::byte* codes,
                 std::byte* scales) {
  const SideLayout& s = page.side();
  const int in_byte = page.codes_in_byte();
  for (int c = 0; c < s.head_dim; ++c) {
    if (c % in_byte == 0) codes[c / in_byte] = std::byte{0};
    codes[c / in_byte] |=
        static_cast<std::byte>(LoadCode(s, stored, token, c) << c % in_byte * s.format.bits);
  }
  for (int g = 0; g < s.channel_groups; ++g) {
    std::memcpy(scales + g * s.scale_bytes, stored + ScaleByte(s, token, g),
                static_cast<size_t>(s.scale_bytes));
  }
}

// The page is all zeros before its first token.
void ImportToken(const Page& page, const std::byte* codes, const std::byte* scales, int token,
                 std::byte* stored) {
  const SideLayout& s = page.side();
  const int in_byte = page.codes_in_byte(), mask = (1 << s.format.bits) - 1;
  for (int c = 0; c < s.head_dim; ++c) {
    const int byte = static_cast<int>(codes[c / in_byte]);
    StoreCode(s, stored, token, c, byte >> c % in_byte * s.format.bits & mask);
  }
  for (int g = 0; g < s.channel_groups; ++g) {
    std::memcpy(stored + ScaleByte(s, token, g), scales + g * s.scale_bytes,
                static_cast<size_t>(s.scale_bytes));
  }
}

Status CheckSizes(const Format& format, Side side, int64_t tokens, int head_dim,
                  size_t encoded_bytes, size_t code_bytes, size_t scale_bytes) {
  KVANT_ASSIGN_OR_RETURN(const PublishedBytes bytes,
                         PublishedArrayBytes(format, side, tokens, head_dim));
  KVANT_ASSIGN_OR_RETURN(const int64_t encoded, EncodedArrayBytes(format, side, tokens, head_dim));
  const auto check = [](const char* what, size_t size, int64_t expected) {
    if (static_cast<int64_t>(size) == expected) return Status::Ok();
    return Status::InvalidArgument("the buffer of " + std::string(what) + " has " +
                                   std::to_string(size) + " bytes where the shape asks for " +
                                   std::to_string(expected));
  };
  KVANT_RETURN_IF_ERROR(check("the encoded array", encoded_bytes, encoded));
  KVANT_RETURN_IF_ERROR(check("codes", code_bytes, bytes.codes));
  return check("scales", scale_bytes, bytes.scales);
}

}  // namespace

Result<PublishedBytes> PublishedArrayBytes(const Format& format, Side side, int64_t tokens,
                                           int head_dim) {
  KVANT_ASSIGN_OR_RETURN([[maybe_unused]] const int64_t encoded,
                         EncodedArrayBytes(format, side, tokens, head_dim));
  if (!format.is_small_float()) {
    return Status::InvalidArgument("format " + FormatSpec(format) +
                                   " has no published order; FP8 and FP4 formats do");
  }
  const Page page(format, side, head_dim);
  return PublishedBytes{tokens * page.code_bytes_per_token(),
                        tokens * page.scale_bytes_per_token()};
}

Status ExportPublished(const Format& format, Side side, std::span<const std::byte> encoded,
                       int64_t tokens, int head_dim, std::span<std::byte> codes,
                       std::span<std::byte> scales) {
  KVANT_RETURN_IF_ERROR(
      CheckSizes(format, side, tokens, head_dim, encoded.size(), codes.size(), scales.size()));
  const Page page(format, side, head_dim);
  for (int64_t t = 0; t < tokens; ++t) {
    const std::byte* stored = encoded.data() + t / page.tokens() * page.side().bytes;
    ExportToken(page, stored, static_cast<int>(t % page.tokens()),
                codes.data() + t * page.code_bytes_per_token(),
                scales.data() + t * page.scale_bytes_per_token());
  }
  return Status::Ok();
}

Status ImportPublished(const Format& format, Side side, std::span<const std::byte> codes,
                       std::span<const std::byte> scales, int64_t tokens, int head_dim,
                       std::span<std::byte> encoded) {
  KVANT_RETURN_IF_ERROR(
      CheckSizes(format, side, tokens, head_dim, encoded.size(), codes.size(), scales.size()));
  const Page page(format, side, head_dim);
  std::memset(encoded.data(), 0, encoded.size());
  for (int64_t t = 0; t < tokens; ++t) {
    std::byte* stored = encoded.data() + t / page.tokens() * page.side().bytes;
    ImportToken(page, codes.data() + t * page.code_bytes_per_token(),
                scales.data() + t * page.scale_bytes_per_token(),
                static_cast<int>(t % page.tokens()), stored);
  }
  return Status::Ok();
}

}  // namespace kvant
