// Sessions that are saved, loaded, shifted and run in ragged batches.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kvant/generate.h"
#include "kvant/inspect.h"
#include "kvant/session.h"
#include "model/session_for_test.h"
#include "model/session_impl.h"
#include "model/toy_model_for_test.h"

namespace kvant {
namespace {

const Model& Plain() {
  static const Model model = ToyModel().Load("timeline").value();
  return model;
}
// Every layer but one sees the newest 96 tokens.
const Model& Windowed() {
  static const Model model =
      ToyModel({.architecture = "gemma3", .layers = 6, .head_dim = 16, .window_tokens = 96})
          .Load("timeline_windows")
          .value();
  return model;
}

Session MakeSession(const Model& model, const KvSpec& kv, int64_t context = 512) {
  return MakeSession(model, SessionOptions{.kv = kv, .context_tokens = context, .threads = 2});
}
KvSpec SpecOf(const std::string& kv) { return *ParseKvPreset(kv); }

// A name of its own for each test: they run side by side.
std::string PathOf(const std::string& name) {
  return testing::TempDir() + "kvant_" +
         testing::UnitTest::GetInstance()->current_test_info()->name() + name;
}
std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// ---- Save and Load

TEST(SessionSnapshot, ALoadedSessionGoesOnBitForBitInEveryPreset) {
  std::vector<std::string> presets = KvPresetNames();
  for (const char* more :
       {"nest4:mean:bal:n8/nest3:n8", "int4:prerope:out2/int4:out2", "tq3/tq1:n8"}) {
    presets.emplace_back(more);
  }
  const std::string path = PathOf(".kv");
  const std::vector<int32_t> tokens = ToyTokens(420, 40);
  const std::span<const int32_t> all(tokens);
  for (const Model* model : {&Plain(), &Windowed()}) {
    for (const std::string& preset : presets) {
      if (!CheckKvSpec(SpecOf(preset), model->geometry()).ok()) continue;
      Session session = MakeSession(*model, SpecOf(preset));
      ASSERT_TRUE(session.Prefill(all.first(330)).ok());
      ASSERT_TRUE(session.Save(path).ok());
      Session loaded = MakeSession(*model, SpecOf(preset));
      ASSERT_TRUE(loaded.Prefill(all.subspan(100, 50)).ok());  // which goes
      const Status status = loaded.Load(path);
      ASSERT_TRUE(status.ok()) << preset << ": " << status.message();
      EXPECT_EQ(loaded.length(), 330);
      EXPECT_TRUE(std::equal(loaded.tokens().begin(), loaded.tokens().end(), tokens.begin()));
      EXPECT_EQ(LogitsOf(loaded), LogitsOf(session)) << preset;
      for (Session* each : {&session, &loaded}) {
        ASSERT_TRUE(each->Prefill(all.subspan(330, 70)).ok());
        for (int i = 400; i < 420; ++i)
          ASSERT_TRUE(each->Decode(tokens[static_cast<size_t>(i)]).ok());
      }
      EXPECT_EQ(LogitsOf(loaded), LogitsOf(session)) << preset;
      // Not before: what was coded ahead of its readers is not saved.
      EXPECT_EQ(loaded.ledger().kv_bytes, session.ledger().kv_bytes) << preset;
    }
  }
}

TEST(SessionSnapshot, ACutSessionComesBackWithoutLogits) {
  const std::string path = PathOf(".kv");
  Session session = MakeSession(Plain(), SpecOf("int4"));
  ASSERT_TRUE(session.Prefill(ToyTokens(200, 40)).ok());
  ASSERT_TRUE(session.Truncate(180).ok());
  ASSERT_TRUE(session.Save(path).ok());
  Session loaded = MakeSession(Plain(), SpecOf("int4"));
  ASSERT_TRUE(loaded.Load(path).ok());
  EXPECT_FALSE(loaded.Logits().ok());
  ASSERT_TRUE(loaded.Decode(3).ok());
  ASSERT_TRUE(session.Decode(3).ok());
  EXPECT_EQ(LogitsOf(loaded), LogitsOf(session));
  const Result<SnapshotSummary> summary = InspectSnapshot(path);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->length, 180);
  EXPECT_FALSE(summary->has_logits);
}

TEST(SessionSnapshot, AFileThatIsRefusedLeavesTheSessionAsItWas) {
  const std::string path = PathOf(".kv"), bad_path = PathOf(".bad.kv");
  const std::vector<int32_t> tokens = ToyTokens(300, 40);
  Session session = MakeSession(Plain(), SpecOf("int4"));
  ASSERT_TRUE(session.Prefill(tokens).ok());
  ASSERT_TRUE(session.Save(path).ok());
  const std::string good = ReadAll(path);

  Session live = MakeSession(Plain(), SpecOf("int4"));
  ASSERT_TRUE(live.Prefill(std::span(tokens).subspan(0, 90)).ok());
  const std::vector<float> before = LogitsOf(live);
  const CacheLedger ledger = live.ledger();
  const auto refusal = [&](const std::string& bytes) {
    WriteAll(bad_path, bytes);
    const Status status = live.Load(bad_path);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(status.message().starts_with(bad_path)) << status.message();
    EXPECT_EQ(live.length(), 90);
    EXPECT_EQ(live.ledger().allocated_bytes, ledger.allocated_bytes);
    EXPECT_EQ(live.ledger().kv_bytes, ledger.kv_bytes);
    EXPECT_EQ(LogitsOf(live), before);
    return status;
  };
  for (size_t cut = 0; cut < good.size(); cut += 4096) {
    EXPECT_EQ(refusal(good.substr(0, cut)).code(), StatusCode::kCorrupt) << cut;
  }
  for (size_t at = 0; at < good.size(); at += at < 300 ? 1 : 1009) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    EXPECT_FALSE(refusal(bad).message().empty()) << at;
  }
  Session straight = MakeSession(Plain(), SpecOf("int4"));
  ASSERT_TRUE(straight.Prefill(std::span(tokens).subspan(0, 90)).ok());
  ASSERT_TRUE(straight.Decode(7).ok());
  ASSERT_TRUE(live.Decode(7).ok());
  EXPECT_EQ(LogitsOf(live), LogitsOf(straight));

  const auto differs = [&](Session other, const std::string& what) {
    const Status status = other.Load(path);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
    EXPECT_EQ(other.length(), 0);
  };
  const Model other_weights = ToyModel({}, 5).Load("timeline_other").value();
  differs(MakeSession(other_weights, SpecOf("int4")), "another model");
  differs(MakeSession(Plain(), SpecOf("int3")), "layer 0");
  EXPECT_EQ(MakeSession(Plain(), SpecOf("int4"), 200).Load(path).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(live.Load("/nonexistent.kv").code(), StatusCode::kNotFound);
}

TEST(SessionSnapshot, WhatCannotBeWrittenLeavesTheOldFileWhole) {
  const std::string path = PathOf(".kv");
  Session session = MakeSession(Plain(), SpecOf("int4"));
  ASSERT_TRUE(session.Prefill(ToyTokens(100, 40)).ok());
  ASSERT_TRUE(session.Save(path).ok());
  const std::string first = ReadAll(path);
  ASSERT_TRUE(session.Decode(1).ok());
  ASSERT_TRUE(session.Save(path).ok());
  EXPECT_NE(ReadAll(path), first);
  EXPECT_EQ(session.Save("/nonexistent/a.kv").code(), StatusCode::kIo);
  EXPECT_EQ(session.Save("/dev/null").code(), StatusCode::kIo);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

// ---- Shift

TEST(SessionShift, ThePlanDropsHalfOfWhatFollows) {
  const auto plan = [](const std::string& kv, int64_t context, int64_t keep) {
    return MakeSession(Plain(), SpecOf(kv), context).PlanShift(keep);
  };
  ContextShift shift = plan("int4", 512, 0).value();
  EXPECT_EQ(shift.keep_tokens, 4);
  EXPECT_EQ(shift.drop_tokens, 192);
  shift = plan("int4", 512, 100).value();
  EXPECT_EQ(shift.keep_tokens, 128);
  EXPECT_EQ(shift.drop_tokens, 192);
  shift = plan("f16", 512, 100).value();
  EXPECT_EQ(shift.keep_tokens, 100);
  EXPECT_EQ(shift.drop_tokens, 192);
  EXPECT_EQ(plan("int4", 128, 0).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(plan("kivi4", 192, 0).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(plan("int4", 512, 500).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(plan("int4", 512, -1).status().code(), StatusCode::kInvalidArgument);
}

// f32 holds turned keys to 24 bits, so a first layer alone, whose keys depend on nothing before
// them, must predict what it would have without the tokens that went: the model's only loss is the
// rounding of products with 8-bit activations, which is switched off.
TEST(SessionShift, AModelOfOneLayerSeesWhatWasNeverLonger) {
  const Model model =
      ToyModel({.layers = 1}).Load("timeline_one_layer", {.float_activations = true}).value();
  const std::vector<int32_t> tokens = ToyTokens(460, 40);
  std::vector<int32_t> rest(tokens.begin(), tokens.begin() + 70);
  rest.insert(rest.end(), tokens.begin() + 70 + 192, tokens.end());
  Session shifted = MakeSession(model, SpecOf("f32")), straight = MakeSession(model, SpecOf("f32"));
  ASSERT_TRUE(shifted.Prefill(std::span(tokens).first(450)).ok());
  const std::vector<float> before = LogitsOf(shifted);
  ASSERT_TRUE(shifted.Shift({.keep_tokens = 70, .drop_tokens = 192}).ok());
  EXPECT_EQ(LogitsOf(shifted), before);
  EXPECT_TRUE(std::equal(shifted.tokens().begin(), shifted.tokens().end(), rest.begin()));
  ASSERT_TRUE(shifted.Prefill(std::span(tokens).subspan(450)).ok());
  ASSERT_TRUE(straight.Prefill(rest).ok());
  const std::vector<float> a = LogitsOf(shifted), b = LogitsOf(straight);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4) << i;
}

// Far beyond the context, in windows too.
TEST(SessionShift, AnAnswerGoesOnBeyondTheContext) {
  for (const Model* model : {&Plain(), &Windowed()}) {
    for (const char* kv : {"f16", "int4", "kvquant4", "trellis2s", "int8", "qserve4"}) {
      Session session = MakeSession(*model, SpecOf(kv), 300);
      GenerateOptions options;
      options.max_tokens = 600;
      options.ignore_end = true;
      options.sampler.temperature = 0;
      options.shift_keep_tokens = 10;
      const Result<GenerateResult> result = Generate(session, ToyTokens(40, 40), options);
      ASSERT_TRUE(result.ok()) << kv << ": " << result.status().message();
      EXPECT_EQ(result->tokens.size(), 600u);
      EXPECT_GE(result->shifts, 3);
      EXPECT_EQ(result->stop_reason, StopReason::kLength);
      EXPECT_LE(session.length(), 300);
      EXPECT_EQ(std::ssize(session.tokens()), session.length());
      for (const float logit : LogitsOf(session)) ASSERT_TRUE(std::isfinite(logit));
    }
  }
  Session session = MakeSession(Plain(), SpecOf("int4"), 128);
  GenerateOptions options;
  options.max_tokens = 10;
  options.shift_keep_tokens = 0;
  EXPECT_EQ(Generate(session, ToyTokens(40, 40), options).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(session.length(), 0);
}

TEST(SessionShift, AShiftedSessionIsSavedAndGoesOn) {
  const std::string path = PathOf(".kv");
  for (const char* kv : {"f16", "int4", "kvquant4"}) {
    Session session = MakeSession(Plain(), SpecOf(kv));
    ASSERT_TRUE(session.Prefill(ToyTokens(500, 40)).ok());
    ASSERT_TRUE(session.Shift(*session.PlanShift(0)).ok());
    ASSERT_TRUE(session.Save(path).ok());
    Session loaded = MakeSession(Plain(), SpecOf(kv));
    ASSERT_TRUE(loaded.Load(path).ok());
    for (Session* each : {&session, &loaded}) {
      ASSERT_TRUE(each->Prefill(ToyTokens(150, 40, 3)).ok());
    }
    EXPECT_EQ(LogitsOf(loaded), LogitsOf(session));
  }
}

// ---- Batches

// Lengths 1, 7, 64 and 300; they end the longest first, then in no order, and others come.
TEST(SessionBatch, RaggedSequencesGetWhatEachGetsAlone) {
  for (const Model* model : {&Plain(), &Windowed()}) {
    for (const char* kv : {"f16", "int4", "kvquant4", "kivi2"}) {
      Session parent = MakeSession(*model, SpecOf(kv)), alone = MakeSession(*model, SpecOf(kv));
      struct Line {
        Session session;
        std::vector<int32_t> tokens;
      };
      std::vector<Line> lines;
      uint64_t seed = 1;
      const auto admit = [&](int64_t length) {
        Session fresh = std::move(parent.Fork()).value();
        std::vector<int32_t> tokens = ToyTokens(length, 40, seed++);
        EXPECT_TRUE(fresh.Prefill(tokens).ok());
        lines.push_back({std::move(fresh), std::move(tokens)});
      };
      for (const int64_t length : {1, 7, 64, 300}) admit(length);
      const auto steps = [&](int count) {
        for (int i = 0; i < count; ++i) {
          std::vector<Session*> sessions;
          std::vector<int32_t> next;
          for (Line& line : lines) {
            next.push_back(static_cast<int32_t>((line.tokens.size() * 7 + 3) % 40));
            line.tokens.push_back(next.back());
            sessions.push_back(&line.session);
          }
          ASSERT_TRUE(Session::DecodeBatch(sessions, next).ok());
        }
      };
      const auto check = [&] {
        for (Line& line : lines) {
          ASSERT_TRUE(alone.Reset().ok());
          ASSERT_TRUE(alone.Prefill(line.tokens).ok());
          ASSERT_EQ(LogitsOf(line.session), LogitsOf(alone)) << kv << ' ' << line.tokens.size();
        }
      };
      const size_t kLeaving[] = {3, 0, 1};
      for (const size_t leaving : kLeaving) {
        steps(40);
        ASSERT_NO_FATAL_FAILURE(check());
        lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(leaving));
        if (leaving == 0) admit(90);
      }
      steps(25);
      ASSERT_NO_FATAL_FAILURE(check());
    }
  }
}

}  // namespace
}  // namespace kvant
