// A page that closes: f16 device page to coded device page; and a token into an open one.
#pragma once

#include "cuda/encode_groups.h"
#include "cuda/encode_tokens.h"

namespace kvant::cuda {

// One block a page.
template <PageCode kPage, int kDim>
KVANT_DEVICE void EncodePage(const EncodeArguments& args) {
  const int page = BlockX();
  const unsigned char* source =
      args.f16_payload +
      static_cast<int64_t>(Load4(args.from_pages + page)) * PagePayloadBytes(kF16Page, kDim);
  const int64_t number = Load4(args.to_pages + page);
  unsigned char* payload = args.payload + number * PagePayloadBytes(kPage, kDim);
  unsigned char* metadata = args.metadata + number * PageMetadataBytes(kPage, kDim);
  const int first_token = static_cast<int>(Load4(args.first_tokens + page));
  unsigned char* v_metadata = metadata + KMetadataBytes(kPage.k, kDim);
  const unsigned char* v_source = source + SidePayloadBytes(SideCode::kF16, kDim);
  unsigned char* v_payload = payload + SidePayloadBytes(kPage.k, kDim);
  if constexpr (IsByToken(kPage.k) && IsByToken(kPage.v)) {
    const int token = ThreadIndex() % kDevicePageTokens;
    const bool is_sink = token < first_token;
    if (UniformWarp() < kDevicePageTokens / kWarpLanes) {
      TokenEncoder<kPage.k, kDim, true>{args, source, payload, metadata, token, is_sink}.Encode();
    } else {
      TokenEncoder<kPage.v, kDim, false>{args, v_source, v_payload, v_metadata, token, is_sink}
          .Encode();
    }
  } else {
    const int lane = LaneIndex();
    GroupEncoder<kPage.k, kDim, true>{
        args,        source, payload,  metadata, metadata + KOffsetsByte(kDim),
        first_token, lane,   lane / 4, lane % 4}
        .EncodeAll();
    GroupEncoder<kPage.v, kDim, false>{
        args,        v_source, v_payload, v_metadata, v_metadata + VOffsetsByte(kDim),
        first_token, lane,     lane / 4,  lane % 4}
        .EncodeAll();
  }
}

// Writes one token a row into its open f16 page; one block a row.
KVANT_DEVICE void AppendToken(const AppendArguments& args) {
  const int row = BlockX(), dim = args.head_dim;
  unsigned char* page = args.f16_payload + static_cast<int64_t>(Load4(args.pages + row)) *
                                               PagePayloadBytes(kF16Page, dim);
  const int token = static_cast<int>(Load4(args.slots + row));
  KVANT_LOOP
  for (int i = ThreadIndex(); i < 2 * dim; i += kBlockThreads) {
    const bool is_k = i < dim;
    const int channel = is_k ? i : i - dim;
    const float value = (is_k ? args.k : args.v)[static_cast<int64_t>(row) * dim + channel];
    unsigned char* side = page + (is_k ? 0 : SidePayloadBytes(SideCode::kF16, dim));
    *reinterpret_cast<uint16_t*>(side + BitOf(is_k, SideCode::kF16, dim, token, channel) / 8) =
        static_cast<uint16_t>(PackHalves(value, 0.0f));
  }
}

}  // namespace kvant::cuda
