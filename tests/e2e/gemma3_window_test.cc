// Gemma 3 270M past the 512 tokens that 15 of its 18 layers see.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gemma3_for_test.h"
#include "predictions.h"

namespace kvant {
namespace {

constexpr char kTextPath[] = KVANT_SOURCE_DIR "/models/austen.txt";

class Gemma3Window : public Gemma3 {
 protected:
  void SetUp() override {
    Gemma3::SetUp();
    if (!std::filesystem::exists(kTextPath)) GTEST_SKIP() << kTextPath << " is not there";
  }
};

std::vector<int32_t> Text(bool float_activations, size_t tokens) {
  std::ifstream file(kTextPath, std::ios::binary);
  std::string text(8 * tokens, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  std::vector<int32_t> ids = LoadGemma3(float_activations).tokenizer().Encode(text, false).value();
  EXPECT_GE(ids.size(), tokens);
  ids.resize(tokens);
  return ids;
}

Session MakeSession(bool float_activations, const std::string& kv, int chunk_tokens) {
  SessionOptions options;
  options.kv = *ParseKvPreset(kv);
  options.context_tokens = 4096;
  options.threads = 2;
  options.chunk_tokens = chunk_tokens;
  return Session::Create(LoadGemma3(float_activations), options).value();
}

// What 1,500 tokens more take is what the 3 layers without a window take.
TEST_F(Gemma3Window, OnlyTheFullLayersGrow) {
  const std::vector<int32_t> text = Text(false, 3000);
  for (const char* kv : {"f16", "int4"}) {
    Session session = MakeSession(false, kv, 500);
    const Cache& cache = *session.impl().engine->cache;
    ASSERT_TRUE(session.Prefill(std::span(text).first(1500)).ok());
    const CacheLedger before = session.ledger();
    ASSERT_TRUE(session.Prefill(std::span(text).subspan(1500)).ok());
    const CacheLedger after = session.ledger();
    // Pages of 64 tokens: 24 at 1,500 and 47 at 3,000, whatever form they are in.
    EXPECT_EQ(after.kv_bytes - before.kv_bytes, 3 * 23 * cache.stored_layout(0).page_bytes) << kv;
    EXPECT_EQ(after.window_bytes, before.window_bytes) << kv;
    EXPECT_LT(after.kv_bytes, before.kv_bytes * 3 / 2) << kv;
    EXPECT_LT(static_cast<double>(after.allocated_bytes),
              1.15 * static_cast<double>(after.kv_bytes))
        << kv;
  }
}

// -log p of the token after each position.
std::vector<double> Losses(const std::string& kv, std::span<const int32_t> text,
                           const std::vector<std::pair<int64_t, int64_t>>& ranges) {
  constexpr int kChunk = 100;  // windows end inside chunks
  Session session = MakeSession(true, kv, kChunk);
  Llama& llama = *session.impl().engine->llama;
  const int64_t vocab = session.model().vocab_size();
  std::vector<float> logits(static_cast<size_t>(kChunk * vocab));
  std::vector<double> losses(text.size());
  for (int64_t at = 0; at + 1 < std::ssize(text); at += kChunk) {
    const int64_t end = std::min<int64_t>(at + kChunk, std::ssize(text) - 1);
    const auto chunk = text.subspan(static_cast<size_t>(at), static_cast<size_t>(end - at));
    EXPECT_TRUE(session.impl().Step(chunk, nullptr).ok());
    for (const auto& [first, last] : ranges) {
      const int64_t from = std::max(first, at), to = std::min(last, end);
      if (from >= to) continue;
      llama.Logits(llama.hidden(from - at), to - from, logits.data());
      for (int64_t p = from; p < to; ++p) {
        const float* const row = logits.data() + (p - from) * vocab;
        losses[static_cast<size_t>(p)] =
            CompareRows(row, row, vocab, text[static_cast<size_t>(p + 1)]).nll_base;
      }
    }
  }
  return losses;
}

struct Mean {
  double mean, error;  // the error is that of the mean
};
Mean MeanDifference(const std::vector<double>& a, const std::vector<double>& b, int64_t first,
                    int64_t end) {
  double sum = 0, squares = 0;
  for (int64_t p = first; p < end; ++p) {
    const double d = a[static_cast<size_t>(p)] - b[static_cast<size_t>(p)];
    sum += d;
    squares += d * d;
  }
  const auto n = static_cast<double>(end - first);
  const double variance = (squares - sum * sum / n) / (n - 1);
  return {sum / n, std::sqrt(variance / n)};
}

// What a coded cache costs a token does not jump where windows begin to pass tokens, at position
// 512, nor once pages are given back, after 640. A mean of a hundred tokens is off by its own
// standard error; a jump would be four of them.
TEST_F(Gemma3Window, LossHasNoStepWhereTheWindowIsFull) {
  const std::vector<int32_t> text = Text(true, 1102);
  const std::vector<std::pair<int64_t, int64_t>> ranges = {{400, 700}, {1000, 1100}};
  const std::vector<double> f16 = Losses("f16", text, ranges);
  for (const char* kv : {"int8", "int4"}) {
    const std::vector<double> coded = Losses(kv, text, ranges);
    const Mean before = MeanDifference(coded, f16, 400, 512);
    for (const auto& [first, end] : {std::pair{512, 600}, {600, 700}, {1000, 1100}}) {
      const Mean after = MeanDifference(coded, f16, first, end);
      EXPECT_LT(std::abs(after.mean - before.mean), 4 * std::hypot(before.error, after.error))
          << kv << " from " << first << ": " << before.mean << " +- " << before.error << ", then "
          << after.mean << " +- " << after.error;
      // Nor does one token lose what only a broken cache could make it lose.
      for (int64_t p = first; p < end; ++p) {
        const auto i = static_cast<size_t>(p);
        ASSERT_LT(std::abs(coded[i] - f16[i]), 3) << kv << " at " << p;
      }
    }
  }
}

}  // namespace
}  // namespace kvant
