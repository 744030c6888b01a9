#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "base/aligned_buffer.h"
#include "base/float16.h"
#include "codec/codec.h"
#include "codec/nested.h"
#include "codec/small_float.h"
#include "format/page_layout.h"
#include "kvant/codec.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 32;

SideLayout SideOf(const Format& format, Side side, int head_dim, int page_tokens) {
  const PageLayout page = MakePageLayout(format, format, head_dim, page_tokens);
  return side == Side::kK ? page.k : page.v;
}

Status CheckArray(const Format& format, Side side, int64_t tokens, int head_dim) {
  KVANT_RETURN_IF_ERROR(IsaStatus());
  KVANT_RETURN_IF_ERROR(CheckFormat(format, side, head_dim));
  if (format.levels == Levels::kFitted) {
    return Status::Unsupported("format " + FormatSpec(format) +
                               " is possible for caches only: its levels belong to a layer");
  }
  const int page_tokens = ArrayPageTokens(format);
  if (tokens < 1 || tokens > kMaxTokens || tokens % page_tokens != 0) {
    return Status::InvalidArgument(std::to_string(tokens) +
                                   " tokens are not a positive number of whole pages of " +
                                   std::to_string(page_tokens) + " tokens");
  }
  return Status::Ok();
}

Status CheckSize(const char* what, size_t size, int64_t expected) {
  if (static_cast<int64_t>(size) == expected) return Status::Ok();
  return Status::InvalidArgument(std::string(what) + " has " + std::to_string(size) +
                                 " elements where the shape asks for " + std::to_string(expected));
}

float Rounded(FloatType type, float value) {
  switch (type) {
    case FloatType::kF32:
      return value;
    case FloatType::kF16:
      return F16ToF32(F32ToF16(value));
    case FloatType::kBf16:
      return Bf16ToF32(F32ToBf16(value));
  }
  return value;
}

std::string Refusal(float value, FloatType type) {
  if (!std::isfinite(value)) return "is not finite";
  return "(" + std::to_string(value) + ") is outside the range of " +
         (type == FloatType::kF16 ? "f16" : "bf16");
}

Status CheckValues(FloatType type, std::span<const float> values, int head_dim) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(Rounded(type, values[i]))) continue;
    const size_t width = static_cast<size_t>(head_dim);
    return Status::InvalidArgument("the value of token " + std::to_string(i / width) +
                                   ", channel " + std::to_string(i % width) + " " +
                                   Refusal(values[i], type));
  }
  return Status::Ok();
}

CodedGroup SmallFloatGroup(const Format& format, std::span<const float> values) {
  CodedGroup group;
  std::vector<uint8_t> codes(values.size());
  const uint16_t scale = EncodeSmallFloats(format, values, codes);
  group.scale = SmallFloatScale(format, scale);
  for (uint8_t code : codes) {
    group.codes.push_back(code);
    group.decoded.push_back(SmallFloatValue(format, scale, code));
  }
  return group;
}

}  // namespace

int ArrayPageTokens(const Format& format) { return PageTokensFor(format, format); }

Result<int64_t> EncodedArrayBytes(const Format& format, Side side, int64_t tokens, int head_dim) {
  KVANT_RETURN_IF_ERROR(CheckArray(format, side, tokens, head_dim));
  const int page_tokens = ArrayPageTokens(format);
  return tokens / page_tokens * SideOf(format, side, head_dim, page_tokens).bytes;
}

Status EncodeArray(const Format& format, Side side, std::span<const float> values, int64_t tokens,
                   int head_dim, std::span<std::byte> encoded) {
  KVANT_ASSIGN_OR_RETURN(const int64_t bytes, EncodedArrayBytes(format, side, tokens, head_dim));
  KVANT_RETURN_IF_ERROR(CheckSize("the array of values", values.size(), tokens * head_dim));
  KVANT_RETURN_IF_ERROR(CheckSize("the encoded buffer", encoded.size(), bytes));
  const Format open_format = OpenFormats({format, format}).k;
  KVANT_RETURN_IF_ERROR(CheckValues(open_format.float_type, values, head_dim));

  const int page_tokens = ArrayPageTokens(format);
  const SideLayout open = SideOf(open_format, side, head_dim, page_tokens);
  const SideLayout stored = SideOf(format, side, head_dim, page_tokens);
  KVANT_ASSIGN_OR_RETURN(AlignedBuffer page,
                         AlignedBuffer::Create(static_cast<size_t>(open.bytes)));
  std::memset(page.data(), 0, page.bytes());
  const float* row = values.data();
  for (int64_t p = 0; p < tokens / page_tokens; ++p) {
    for (int t = 0; t < page_tokens; ++t, row += head_dim) {
      for (int c = 0; c < head_dim; ++c) StoreFloatValue(open, page.data(), t, c, row[c]);
    }
    EncodeSide(open, page.data(), stored, 0, encoded.data() + p * stored.bytes);
  }
  return Status::Ok();
}

Status DecodeArray(const Format& format, Side side, std::span<const std::byte> encoded,
                   int64_t tokens, int head_dim, std::span<float> values) {
  KVANT_ASSIGN_OR_RETURN(const int64_t bytes, EncodedArrayBytes(format, side, tokens, head_dim));
  KVANT_RETURN_IF_ERROR(CheckSize("the encoded buffer", encoded.size(), bytes));
  KVANT_RETURN_IF_ERROR(CheckSize("the array of values", values.size(), tokens * head_dim));
  const int page_tokens = ArrayPageTokens(format);
  const SideLayout stored = SideOf(format, side, head_dim, page_tokens);
  for (int64_t p = 0; p < tokens / page_tokens; ++p) {
    DecodeSide(stored, encoded.data() + p * stored.bytes,
               values.data() + p * page_tokens * head_dim, head_dim);
  }
  return Status::Ok();
}

Status DemoteArray(const Format& format, Side side, std::span<const std::byte> encoded,
                   int64_t tokens, int head_dim, int bits, std::span<std::byte> demoted) {
  Format narrow = format;
  narrow.bits = bits;
  if (!CanDemote(format, narrow)) {
    return Status::InvalidArgument("format " + FormatSpec(format) + " does not hold codes of " +
                                   std::to_string(bits) + " bits");
  }
  KVANT_ASSIGN_OR_RETURN(const int64_t bytes, EncodedArrayBytes(format, side, tokens, head_dim));
  KVANT_ASSIGN_OR_RETURN(const int64_t left, EncodedArrayBytes(narrow, side, tokens, head_dim));
  KVANT_RETURN_IF_ERROR(CheckSize("the encoded buffer", encoded.size(), bytes));
  KVANT_RETURN_IF_ERROR(CheckSize("the demoted buffer", demoted.size(), left));
  const SideLayout from = SideOf(format, side, head_dim, kPageTokens);
  const SideLayout to = SideOf(narrow, side, head_dim, kPageTokens);
  for (int64_t p = 0; p < tokens / kPageTokens; ++p) {
    DemoteSide(from, encoded.data() + p * from.bytes, to, demoted.data() + p * to.bytes);
  }
  return Status::Ok();
}

Result<CodedGroup> EncodeGroup(const Format& format, std::span<const float> values) {
  KVANT_RETURN_IF_ERROR(CheckFormat(format, Side::kK, 64));
  if (format.is_float() || format.is_normed()) {
    return Status::InvalidArgument("format " + FormatSpec(format) + " has no groups");
  }
  if (format.outliers != 0) {
    return Status::InvalidArgument("format " + FormatSpec(format) +
                                   " has a side-band, which is not of one group");
  }
  if (values.empty() || values.size() > kMaxGroupValues) {
    return Status::InvalidArgument("a group of " + std::to_string(values.size()) +
                                   " values is not possible; possible: 1 to 1024");
  }
  KVANT_RETURN_IF_ERROR(CheckValues(FloatType::kF16, values, static_cast<int>(values.size())));
  std::vector<float> x;
  for (float v : values) x.push_back(Rounded(FloatType::kF16, v));
  if (format.is_small_float()) return SmallFloatGroup(format, x);
  const GroupParameters p = FitValues(format, x);
  CodedGroup group;
  group.scale = p.scale;
  if (format.offset == Offset::kIntegerZero) {
    group.zero = static_cast<float>(static_cast<int16_t>(p.offset_bits));
  } else if (format.metadata_bytes_per_group() == 4) {
    group.zero = F16ToF32(p.offset_bits);
  }
  for (float v : x) {
    group.codes.push_back(CodeOf(format, p, v));
    group.decoded.push_back(ValueOf(format, p, group.codes.back()));
  }
  return group;
}

}  // namespace kvant
