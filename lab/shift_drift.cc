// What context shifts cost on real text: a model reads a text through a context that is shifted
// when it is full, with several caches; each is compared with an f32 cache that is shifted alike,
// over the tokens that follow the 1st, 4th and 16th shift. Not part of the build:
//   g++ -std=c++20 -O2 -DNDEBUG -Iinclude lab/shift_drift.cc build/release/src/libkvant.a
//       -lpcre2-8 -lsentencepiece -pthread -o shift_drift
//   ./shift_drift MODEL TEXT CONTEXT KEEP f16 int8 int4 int4:channel:g64:min:prerope/int4 ...
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "kvant/format.h"
#include "kvant/model.h"
#include "kvant/session.h"

namespace {

constexpr int kReported[] = {0, 1, 4, 16};  // shifts before the tokens that a column is about

template <typename T>
T Value(kvant::Result<T> result) {
  if (result.ok()) return std::move(result.value());
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}

void Check(const kvant::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

// Logarithms of the probabilities, [vocabulary].
std::vector<double> LogProbabilities(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - most);
  std::vector<double> out(logits.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = logits[i] - most - std::log(sum);
  return out;
}

double Kl(const std::vector<double>& base, const std::vector<double>& test) {
  double sum = 0;
  for (size_t i = 0; i < base.size(); ++i) sum += std::exp(base[i]) * (base[i] - test[i]);
  return sum;
}

struct Reader {
  std::string name;
  kvant::Session session;
  std::vector<double> kl = std::vector<double>(std::size(kReported));
};

Reader MakeReader(const kvant::Model& model, const std::string& name, int64_t context) {
  kvant::SessionOptions options;
  options.kv = Value(kvant::ParseKvPreset(name));
  options.context_tokens = context;
  return {name, Value(kvant::Session::Create(model, options))};
}

// Appends a token, first making room; how many shifts that took.
int Read(Reader& reader, int32_t token, int64_t context, int64_t keep) {
  const bool full = reader.session.length() == context;
  if (full) Check(reader.session.Shift(Value(reader.session.PlanShift(keep))));
  Check(reader.session.Decode(token));
  return full ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6)
    return std::fprintf(stderr, "usage: shift_drift MODEL TEXT CONTEXT KEEP FORMAT...\n"), 2;
  const kvant::Model model = Value(kvant::Model::Load(argv[1], {.float_activations = true}));
  std::ifstream file(argv[2]);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const int64_t context = std::atoll(argv[3]), keep = std::atoll(argv[4]);
  const auto tokens = Value(model.tokenizer().EncodeFirst(text, context * 16));
  Reader base = MakeReader(model, "f32", context);
  std::vector<Reader> tests;
  for (int i = 5; i < argc; ++i) tests.push_back(MakeReader(model, argv[i], context));

  int shifts = 0;
  std::vector<int64_t> counted(std::size(kReported));
  for (const int32_t token : tokens) {
    shifts += Read(base, token, context, keep);
    if (shifts > kReported[std::size(kReported) - 1]) break;
    const auto want = LogProbabilities(Value(base.session.Logits()));
    const auto* column = std::find(std::begin(kReported), std::end(kReported), shifts);
    const bool reported = column != std::end(kReported);
    if (reported) ++counted[column - kReported];
    for (Reader& test : tests) {
      Read(test, token, context, keep);
      if (reported)
        test.kl[column - kReported] += Kl(want, LogProbabilities(Value(test.session.Logits())));
    }
  }
  std::printf(
      "| cache | before any shift | after 1 | after 4 | after 16 |\n| --- | ---: | ---: | ---: | "
      "---: |\n");
  for (const Reader& test : tests) {
    std::printf("| %s |", test.name.c_str());
    for (size_t c = 0; c < std::size(kReported); ++c) {
      std::printf(counted[c] ? " %.2g |" : " %.0f |", counted[c] ? test.kl[c] / counted[c] : 0.0);
    }
    std::printf("\n");
  }
  std::fprintf(stderr, "tokens a column:");
  for (const int64_t count : counted) std::fprintf(stderr, " %lld", static_cast<long long>(count));
  std::fprintf(stderr, "; shifts: %d\n", shifts);
}
