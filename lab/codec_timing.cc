// Time to encode and decode one page (K and V side) at each ISA level. Not part of the build:
//   g++ -std=c++20 -O3 -Iinclude -Isrc lab/codec_timing.cc build/release/src/libkvant.a -o
//   codec_timing
// Prints microseconds a page, the best of many repetitions, and the page's f16 bytes per second.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "codec/test_pages.h"
#include "kvant/isa.h"

namespace kvant {
namespace {

template <typename Body>
double BestMicroseconds(const Body& body) {
  double best = 1e30;
  for (int round = 0; round < 60; ++round) {
    const auto start = std::chrono::steady_clock::now();
    int calls = 0;
    std::chrono::duration<double, std::micro> elapsed{};
    do {
      body();
      ++calls;
      elapsed = std::chrono::steady_clock::now() - start;
    } while (elapsed.count() < 1000);
    best = std::min(best, elapsed.count() / calls);
  }
  return best;
}

void Time(const std::string& preset, int head_dim) {
  const Result<KvSpec> spec = ParseKvPreset(preset);
  const int tokens = PageTokensFor(spec->k, spec->v);
  const PageLayout page = MakePageLayout(spec->k, spec->v, head_dim, tokens);
  const auto value = [](int t, int c) { return MixUnit(MixBits(t) + c) - 0.5f; };
  const OpenSide k(Side::kK, head_dim, tokens, value), v(Side::kV, head_dim, tokens, value);
  std::vector<std::byte> stored(page.page_bytes);
  std::vector<float> out(static_cast<size_t>(tokens * head_dim));
  for (Isa isa : AvailableIsas()) {
    if (!SetActiveIsa(isa).ok()) continue;
    std::byte* v_stored = stored.data() + page.v_offset_bytes;
    const double encode_k =
        BestMicroseconds([&] { EncodeSide(k.layout, k.bytes.data(), page.k, 0, stored.data()); });
    const double encode_v =
        BestMicroseconds([&] { EncodeSide(v.layout, v.bytes.data(), page.v, 0, v_stored); });
    const double decode_k =
        BestMicroseconds([&] { DecodeSide(page.k, stored.data(), out.data(), head_dim); });
    const double decode_v =
        BestMicroseconds([&] { DecodeSide(page.v, v_stored, out.data(), head_dim); });
    std::printf(
        "%-14s D%-4d %-7s encode K %8.2f V %8.2f  decode K %8.2f V %8.2f us  (%.2f GB/s in)\n",
        preset.c_str(), head_dim, std::string(IsaName(isa)).c_str(), encode_k, encode_v, decode_k,
        decode_v, tokens * head_dim * 4 / (encode_k + encode_v) / 1e3);
  }
}

}  // namespace
}  // namespace kvant

int main() {
  for (const char* preset :
       {"int4", "int8", "int3", "int2", "q4_0", "q8_0", "iq4_nl", "int4:g128"}) {
    kvant::Time(preset, 64);
  }
  kvant::Time("int4", 128);
  kvant::Time("int4", 256);
  return 0;
}
