// What tokens of several widths cost attention: kept in pools by width, each read by the kernel of
// its format, against one run in which every token carries a tag and is decoded by what it says.
// Not part of the build:
//   g++ -std=c++20 -O3 -march=native -Iinclude -Isrc lab/mixed_pools.cc
//       build/release/src/libkvant.a -pthread -o mixed_pools
//   ./mixed_pools 8192 64 3        depth, head_dim, group ratio
//
// Both hold the same tokens: widths 8, 4, 2 and dropped by a hash of the position, int:token with a
// minimum. Printed are nanoseconds and bytes of a head and step, and what the pools' bytes would
// take at the speed of caches that have one width. The ways take turns; quartiles are compared.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "attention/attention.h"
#include "base/float16.h"
#include "cache/cache.h"
#include "kvant/mixed_spec.h"
#include "kvant/policy.h"

namespace kvant {
namespace {

constexpr int kHeads = 16;  // so that no cache holds them all
constexpr int kRounds = 60;
constexpr char kPools[] =
    "8=int8:token:min/int8:token:min+4=int4:token:min/int4:token:min+"
    "2=int2:token:min/int2:token:min";

int WidthOf(int64_t position) {
  constexpr int kWidths[] = {8, 4, 4, 4, 2, 2, 2, 0};
  return kWidths[(static_cast<uint64_t>(position) * 0x9e3779b97f4a7c15u >> 40) % 8];
}

class ByPosition : public Policy {
 public:
  std::string name() const override { return "by position"; }
  void Importance(const PolicyTokens&, const PolicyLimits&, std::span<double>) const override {}
  void Choose(const PolicyTokens& tokens, const PolicyLimits& limits,
              std::span<uint8_t> width) const override {
    for (size_t i = 0; i < width.size(); ++i) {
      const int64_t t = tokens.position[i];
      const bool fixed = t < limits.sinks || t >= limits.length - limits.window_tokens;
      width[i] = fixed ? tokens.width[i] : static_cast<uint8_t>(WidthOf(t));
    }
  }
};

template <typename T>
T Must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}
void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

struct Tokens {
  int64_t depth;
  int head_dim;
  std::vector<float> k, v;  // [kHeads][depth][head_dim]
  const float* K(int head) const { return k.data() + head * depth * head_dim; }
  const float* V(int head) const { return v.data() + head * depth * head_dim; }
};

// ---- Pools, or one width: the library

class CacheWay {
 public:
  CacheWay(const Tokens& tokens, int ratio, const KvSpec& spec)
      : tokens_(tokens),
        ratio_(ratio),
        cache_(Must(Cache::CreateWithoutModel({1, kHeads, tokens.head_dim, kHeads * ratio}, spec,
                                              {.context_tokens = tokens.depth}))),
        seq_(Must(cache_->NewSequence())) {
    while (cache_->length(seq_) < tokens.depth) {
      const int64_t at = cache_->length(seq_);
      const int64_t count = std::min<int64_t>(cache_->max_step_tokens(seq_), 512);
      Must(cache_->Reserve(seq_, count));
      for (int h = 0; h < kHeads; ++h) {
        const int d = tokens.head_dim;
        Must(cache_->Append(seq_, 0, h, tokens.K(h) + at * d, d, tokens.V(h) + at * d, d, count));
        Must(cache_->Seal(seq_, 0, h));
        cache_->Release(seq_, 0, h);
      }
      cache_->Commit(seq_, count);
    }
  }

  void Attend(ThreadPool& pool, const float* q, float* out) {
    const int d = tokens_.head_dim;
    std::vector<AttentionTask> tasks;
    for (int h = 0; h < kHeads; ++h) {
      AttentionTask task;
      task.view = cache_->View(seq_, 0, h, (tokens_.depth - 1) / kPageTokens);
      task.first_position = tokens_.depth - 1;
      task.queries = 1;
      task.group_ratio = ratio_;
      task.q = q + h * ratio_ * d;
      task.out = out + h * ratio_ * d;
      tasks.push_back(task);
    }
    Must(kvant::Attend(pool, tasks, d, 1.0f / std::sqrt(static_cast<float>(d)), workspace_));
  }
  int64_t bytes() const { return cache_->bytes_read_per_token(seq_) / kHeads; }
  // Of runs of coded pages of one width, all heads together.
  int64_t CodedBytes(int width) const {
    int64_t bytes = 0;
    for (int h = 0; h < kHeads; ++h) {
      const HeadView view = cache_->View(seq_, 0, h, (tokens_.depth - 1) / kPageTokens);
      for (const Run& run : view.runs) {
        if (run.empty() || run.layout->k.format.bits != width) continue;
        bytes += int64_t{run.num_pages} * run.layout->page_bytes;
      }
    }
    return bytes;
  }

 private:
  const Tokens& tokens_;
  const int ratio_;
  std::unique_ptr<Cache> cache_;
  SequenceId seq_;
  AttentionWorkspace workspace_;
};

// ---- One run, a tag a token

class InlineWay {
 public:
  InlineWay(const Tokens& tokens, int ratio) : tokens_(tokens), ratio_(ratio) {
    for (int h = 0; h < kHeads; ++h) {
      streams_.emplace_back();
      for (int64_t t = 0; t < tokens.depth; ++t) {
        const bool fixed = t < 4 || t >= (tokens.depth - 1) / 64 * 64 - 64;
        const int width = fixed ? 16 : WidthOf(t);
        if (width == 0) continue;
        streams_.back().push_back(static_cast<uint8_t>(width));
        Put(tokens.K(h) + t * tokens.head_dim, width, streams_.back());
        Put(tokens.V(h) + t * tokens.head_dim, width, streams_.back());
      }
    }
  }

  void Attend(const float* q, float* out) const {
    for (int h = 0; h < kHeads; ++h) {
      AttendHead(streams_[static_cast<size_t>(h)], q + h * ratio_ * tokens_.head_dim,
                 out + h * ratio_ * tokens_.head_dim);
    }
  }
  int64_t bytes() const {
    int64_t bytes = 0;
    for (const auto& stream : streams_) bytes += static_cast<int64_t>(stream.size());
    return bytes / kHeads;
  }

 private:
  void Put(const float* x, int width, std::vector<uint8_t>& to) const {
    const int d = tokens_.head_dim;
    const auto put16 = [&](uint16_t bits) {
      to.push_back(static_cast<uint8_t>(bits));
      to.push_back(static_cast<uint8_t>(bits >> 8));
    };
    if (width == 16) {
      for (int c = 0; c < d; ++c) put16(F32ToF16(x[c]));
      return;
    }
    const auto [min, max] = std::minmax_element(x, x + d);
    const float steps = static_cast<float>((1 << width) - 1);
    const uint16_t scale = F32ToF16((*max - *min) / steps), offset = F32ToF16(*min);
    put16(scale);
    put16(offset);
    uint8_t byte = 0;
    for (int c = 0; c < d; ++c) {  // code c of a byte's share lies d * width / 8 codes apart
      const int in_byte = 8 / width;
      const float value = x[c / in_byte + c % in_byte * (d / in_byte)];
      const float code =
          std::clamp(std::rint((value - F16ToF32(offset)) / F16ToF32(scale)), 0.0f, steps);
      byte = static_cast<uint8_t>(byte | static_cast<int>(code) << (c % in_byte * width));
      if (c % in_byte != in_byte - 1) continue;
      to.push_back(byte);
      byte = 0;
    }
  }

  // Decodes a token's side to x and returns what follows it.
  template <int kWidth>
  const uint8_t* Codes(const uint8_t* from, float* x) const {
    const int d = tokens_.head_dim;
    uint16_t scale_bits, offset_bits;
    std::memcpy(&scale_bits, from, 2);
    std::memcpy(&offset_bits, from + 2, 2);
    const float scale = F16ToF32(scale_bits), offset = F16ToF32(offset_bits);
    constexpr int kInByte = 8 / kWidth;
    const int bytes = d / kInByte;
    for (int part = 0; part < kInByte; ++part) {
      for (int i = 0; i < bytes; ++i) {
        const int code = from[4 + i] >> (part * kWidth) & ((1 << kWidth) - 1);
        x[part * bytes + i] = static_cast<float>(code) * scale + offset;
      }
    }
    return from + 4 + bytes;
  }
  const uint8_t* Decode(int width, const uint8_t* from, float* x) const {
    switch (width) {
      case 8:
        return Codes<8>(from, x);
      case 4:
        return Codes<4>(from, x);
      case 2:
        return Codes<2>(from, x);
      default:
        for (int c = 0; c < tokens_.head_dim; ++c) {
          uint16_t bits;
          std::memcpy(&bits, from + 2 * c, 2);
          x[c] = F16ToF32(bits);
        }
        return from + 2 * tokens_.head_dim;
    }
  }

  void AttendHead(const std::vector<uint8_t>& stream, const float* q, float* out) const {
    const int d = tokens_.head_dim;
    const float scale = 1.0f / std::sqrt(static_cast<float>(d));
    float k[256], v[256];
    std::vector<float> max(static_cast<size_t>(ratio_), -1e30f), sum(max.size(), 0.0f);
    std::fill_n(out, ratio_ * d, 0.0f);
    const uint8_t* const end = stream.data() + stream.size();
    for (const uint8_t* at = stream.data(); at < end;) {
      const int width = *at++;
      at = Decode(width, at, k);
      at = Decode(width, at, v);
      for (int r = 0; r < ratio_; ++r) {
        float dots[16] = {};
        for (int c = 0; c < d; c += 16) {
          for (int i = 0; i < 16; ++i) dots[i] += q[r * d + c + i] * k[c + i];
        }
        float score = 0;
        for (const float dot : dots) score += dot;
        score *= scale;
        const auto row = static_cast<size_t>(r);
        if (score > max[row]) {
          const float shrink = std::exp(max[row] - score);
          for (int c = 0; c < d; ++c) out[r * d + c] *= shrink;
          sum[row] *= shrink;
          max[row] = score;
        }
        const float p = std::exp(score - max[row]);
        sum[row] += p;
        for (int c = 0; c < d; ++c) out[r * d + c] += p * v[c];
      }
    }
    for (int r = 0; r < ratio_; ++r) {
      for (int c = 0; c < d; ++c) out[r * d + c] /= sum[static_cast<size_t>(r)];
    }
  }

  const Tokens& tokens_;
  const int ratio_;
  std::vector<std::vector<uint8_t>> streams_;
};

double Quartile(std::vector<double> samples) {
  std::nth_element(samples.begin(), samples.begin() + kRounds / 4, samples.end());
  return samples[kRounds / 4];
}

void Main(int64_t depth, int head_dim, int ratio) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Tokens tokens{depth, head_dim, {}, {}};
  tokens.k.resize(static_cast<size_t>(kHeads * depth * head_dim));
  tokens.v.resize(tokens.k.size());
  for (float& x : tokens.k) x = normal(random);
  for (float& x : tokens.v) x = normal(random);
  std::vector<float> q(static_cast<size_t>(kHeads * ratio * head_dim)), out(q.size()), other = out;
  for (float& x : q) x = normal(random);

  const std::vector<MixedPool> pools = Must(ParseMixedPools(kPools));
  std::vector<std::unique_ptr<CacheWay>> ways;
  for (const MixedPool& pool : pools) {
    KvSpec spec;
    spec.k = pool.formats.k;
    spec.v = pool.formats.v;
    ways.push_back(std::make_unique<CacheWay>(tokens, ratio, spec));
  }
  KvSpec f16;
  ways.push_back(std::make_unique<CacheWay>(tokens, ratio, f16));
  KvSpec mixed;
  SetMixed({.pools = pools, .policy = std::make_shared<ByPosition>()}, &mixed);
  ways.push_back(std::make_unique<CacheWay>(tokens, ratio, mixed));
  const InlineWay in_line(tokens, ratio);

  auto pool = Must(ThreadPool::Create(1));
  std::vector<std::vector<double>> samples(ways.size() + 1);
  for (int round = -1; round < kRounds; ++round) {
    for (size_t way = 0; way < samples.size(); ++way) {
      const auto begin = std::chrono::steady_clock::now();
      if (way < ways.size()) {
        ways[way]->Attend(*pool, q.data(), out.data());
      } else {
        in_line.Attend(q.data(), other.data());
      }
      const std::chrono::duration<double, std::nano> elapsed =
          std::chrono::steady_clock::now() - begin;
      if (round >= 0) samples[way].push_back(elapsed.count() / kHeads);
    }
    if (round >= 0) continue;
    double worst = 0;  // of the last two ways, which hold the same but for a rounding
    for (size_t i = 0; i < out.size(); ++i)
      worst = std::max<double>(worst, std::abs(out[i] - other[i]));
    std::printf("pools and in-line answers differ by %.4f at most\n", worst);
  }
  std::vector<double> ns;
  for (const auto& way : samples) ns.push_back(Quartile(way));
  const size_t last = ways.size() - 1;
  double expected = 0;
  int64_t coded = 0;
  for (size_t i = 0; i < pools.size(); ++i) {
    const int64_t bytes = ways[last]->CodedBytes(pools[i].width) / kHeads;
    std::printf("all %2d bits   %9.0f ns %9ld bytes; the pool has %ld\n", pools[i].width, ns[i],
                static_cast<long>(ways[i]->bytes()), static_cast<long>(bytes));
    expected += ns[i] * static_cast<double>(bytes) / static_cast<double>(ways[i]->bytes());
    coded += bytes;
  }
  const auto f16_bytes = static_cast<double>(ways[last]->bytes() - coded);
  expected += ns[last - 1] * f16_bytes / static_cast<double>(ways[last - 1]->bytes());
  std::printf("all 16 bits   %9.0f ns %9ld bytes; tails, window and sinks have %.0f\n",
              ns[last - 1], static_cast<long>(ways[last - 1]->bytes()), f16_bytes);
  std::printf("pools         %9.0f ns %9ld bytes; at the speeds above %.0f ns: %.3f of them\n",
              ns[last], static_cast<long>(ways[last]->bytes()), expected, ns[last] / expected);
  std::printf("in line       %9.0f ns %9ld bytes; %.1f times the pools\n", ns[last + 1],
              static_cast<long>(in_line.bytes()), ns[last + 1] / ns[last]);
}

}  // namespace
}  // namespace kvant

int main(int argc, char** argv) {
  kvant::Main(argc > 1 ? std::atoll(argv[1]) : 8192, argc > 2 ? std::atoi(argv[2]) : 64,
              argc > 3 ? std::atoi(argv[3]) : 3);
}
