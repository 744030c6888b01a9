// Calibrations of toy models, and sessions that use them.
#include "kvant/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "calibrate/toy_calibration_for_test.h"
#include "kvant/session.h"

namespace kvant {
namespace {

class CalibrateToyModel : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Model> model = ToyModel().Load("calibrate", {.float_activations = true});
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = std::make_unique<Model>(std::move(model).value());
    calibration_ = std::make_shared<const Calibration>(CalibrateToy(*model_));
  }

  Result<Session> Make(const std::string& k, const std::string& v, int window_tokens = 64) const {
    SessionOptions options;
    options.kv.k = *ParseFormat(k, Side::kK);
    options.kv.v = *ParseFormat(v, Side::kV);
    options.kv.window_tokens = window_tokens;
    options.kv.calibration = calibration_;
    options.threads = 1;
    return Session::Create(*model_, options);
  }
  // Root mean square of the difference to the logits with an f32 cache, in their own unit.
  double LogitError(const std::string& k, const std::string& v, int window_tokens = 64) const {
    const auto logits = [&](Result<Session> session) {
      EXPECT_TRUE(session.ok()) << session.status().message();
      EXPECT_TRUE(session->Prefill(ToyTokens(400, model_->vocab_size())).ok());
      const auto row = session->Logits().value();
      return std::vector<float>(row.begin(), row.end());
    };
    const auto want = logits(Make("f32", "f32")), got = logits(Make(k, v, window_tokens));
    double error = 0, square = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += std::pow(got[i] - want[i], 2);
      square += std::pow(want[i], 2);
    }
    return std::sqrt(error / square);
  }

  std::unique_ptr<Model> model_;
  std::shared_ptr<const Calibration> calibration_;
};

// Its heads have no keys and values of their own.
TEST(Calibrate, AModelWhoseHeadsShareALatentIsRefused) {
  const ToyModel toy(
      LatentShape({.rope = 8, .latent = 32, .latent_q = 0, .plain = 12, .value = 10}));
  const Result<Model> model = toy.Load("calibrate_latent");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Status status = Calibrate(*model, ToyTokens(300, model->vocab_size()),
                                  {.max_tokens = 256, .sequence_tokens = 128})
                            .status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("share one latent (deepseek2)"), std::string::npos)
      << status.message();
}

TEST_F(CalibrateToyModel, IsCompleteAndTheSameEveryTime) {
  EXPECT_TRUE(CheckCalibration(*calibration_).ok()) << CheckCalibration(*calibration_).message();
  EXPECT_EQ(calibration_->model_hash, model_->file_hash());
  EXPECT_EQ(calibration_->geometry, model_->geometry());
  EXPECT_EQ(calibration_->tokens, 2 * kToySequence);
  EXPECT_EQ(*calibration_, CalibrateToy(*model_));
  EXPECT_NE(calibration_->layers[0], calibration_->layers[1]);
}

// Both channels of a rotation by position share a factor; neighbours turn together in a llama.
TEST_F(CalibrateToyModel, FactorsAreTiedInPairs) {
  for (const LayerCalibration& layer : calibration_->layers) {
    for (size_t c = 0; c < layer.k_factors.size(); c += 2) {
      EXPECT_EQ(layer.k_factors[c], layer.k_factors[c + 1]);
    }
    EXPECT_NE(layer.k_factors[0], layer.k_factors[2]);
  }
}

// With everything inside the window only rotations and factors are left, which undo themselves:
// what remains is the rounding to f16, 2^-11 relative, seen twice a layer.
TEST_F(CalibrateToyModel, RotationsAndFactorsChangeNothing) {
  for (const char* k : {"int4:token:rzero:smooth", "tq2:rot", "fit2:bal:rot", "fit2:mean",
                        "int2:rot", "int2:token:had:clip96", "int2:smooth:had"}) {
    for (const char* v : {"fit2:rot", "int2:rot:clip92", "int2:had"}) {
      EXPECT_LT(LogitError(k, v, 512), 4e-3) << k << " " << v;
    }
  }
}

// Stored pages too; the factor is that of the test below.
TEST_F(CalibrateToyModel, RotatedUniformFormatsLoseAboutWhatPlainOnesDo) {
  const double plain = LogitError("int6:token:rzero", "int6:rzero");
  for (const char* rotated : {":had", ":rot", ":had:clip99", ":rot:clip99"}) {
    const std::string spec = "int6:token:rzero" + std::string(rotated);
    EXPECT_LT(LogitError(spec, spec), 2 * plain) << rotated;
  }
}

// The logits of one position hang on 32 values of a hidden state, so that the rms errors of two
// formats of equal loss differ by chance by up to a factor of two (F distribution, 97.5 %, about
// 10 degrees of freedom: sqrt(3.7)); levels in a wrong order lose more than 2 bits do.
TEST_F(CalibrateToyModel, FittedLevelsLoseAboutWhatNormalOnesDo) {
  const double normal = LogitError("tq4:mean:n8", "tq4:n8");
  EXPECT_LT(LogitError("fit4:mean:n8", "fit4:n8"), 2 * normal);
  EXPECT_LT(LogitError("fit4:mean:n8:rot", "fit4:n8:rot"), 2 * normal);
  EXPECT_GT(LogitError("fit2:mean:n8", "fit2:n8"), 2 * normal);
}

TEST_F(CalibrateToyModel, WhatNeedsACalibrationIsRefusedWithoutOne) {
  calibration_ = nullptr;
  for (const char* k : {"fit3:mean", "tq4:rot", "int4:smooth", "int4:rot"}) {
    const Status status = Make(k, "f16").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(FormatSpec(*ParseFormat(k, Side::kK))), std::string::npos);
    EXPECT_NE(status.message().find("--calibration"), std::string::npos) << status.message();
  }
  EXPECT_NE(Make("f16", "fit2:n8").status().message().find("V format fit2:n8"), std::string::npos);
}

TEST_F(CalibrateToyModel, ACalibrationOfAnotherModelIsRefused) {
  const Result<Model> other = ToyModel({}, 2).Load("calibrate_other");
  ASSERT_TRUE(other.ok());
  calibration_ = std::make_shared<const Calibration>(CalibrateToy(*other));
  const Status status = Make("fit4", "f16").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("another model"), std::string::npos) << status.message();

  const Result<Model> wide = ToyModel({.layers = 3}).Load("calibrate_wide");
  ASSERT_TRUE(wide.ok());
  calibration_ = std::make_shared<const Calibration>(CalibrateToy(*wide));
  EXPECT_FALSE(Make("fit4", "f16").ok());
}

TEST_F(CalibrateToyModel, ImpossibleRequestsAreRefused) {
  const auto text = ToyTokens(300, model_->vocab_size());
  const auto code = [&](const CalibrateOptions& options) {
    return Calibrate(*model_, text, options).status().code();
  };
  EXPECT_EQ(code({.max_tokens = 300, .sequence_tokens = 64}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.max_tokens = 200, .sequence_tokens = 256}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.max_tokens = 512, .sequence_tokens = 512}), StatusCode::kOutOfRange);
  const std::atomic<bool> cancel{true};
  EXPECT_EQ(Calibrate(*model_, text, {.max_tokens = 256, .sequence_tokens = 256},
                      {.progress = {}, .cancel = &cancel})
                .status()
                .code(),
            StatusCode::kCancelled);
}

double BitsOf(const std::vector<FormatPair>& pairs, int head_dim) {
  double bits = 0;
  for (const FormatPair& pair : pairs) {
    bits += pair.k.EffectiveBits(head_dim) + pair.v.EffectiveBits(head_dim);
  }
  return bits / (2.0 * static_cast<double>(pairs.size()));
}

// Head size 16: 2 bits are 2.5 of V, 2.77 of K with its mean.
TEST_F(CalibrateToyModel, TheBudgetOfLayersIsUsedButNotExceeded) {
  const auto text = ToyTokens(512, model_->vocab_size());
  const auto choose = [&](double bits) {
    return ChooseLayerFormats(*model_, text,
                              {.budget_bits = bits, .context_tokens = 256, .scored_tokens = 127});
  };
  const auto tight = choose(3.2), loose = choose(8);
  ASSERT_TRUE(tight.ok() && loose.ok()) << tight.status().message();
  ASSERT_EQ(tight->size(), 2u);
  EXPECT_LE(BitsOf(*tight, 16), 3.2);
  EXPECT_GT(BitsOf(*tight, 16), 3.2 - 0.25);  // of four sides one more bit would not fit
  for (const FormatPair& pair : *loose) {
    EXPECT_EQ(FormatSpec(pair.k), "tq4:mean:bal:n8");
    EXPECT_EQ(FormatSpec(pair.v), "tq4:n8");
  }
  EXPECT_EQ(choose(2.5).status().code(), StatusCode::kInvalidArgument);
}

// A layer whose output is multiplied by almost nothing gets no bit before the other has all.
TEST(ChooseLayerFormats, GivesBitsToTheLayerThatNeedsThem) {
  ToyModel toy;
  for (float& x : toy.tensors["blk.0.attn_output.weight"].values) x *= 1e-3f;
  const Result<Model> model = toy.Load("choice", {.float_activations = true});
  ASSERT_TRUE(model.ok());
  const auto text = ToyTokens(512, model->vocab_size());
  const auto pairs = ChooseLayerFormats(
      *model, text, {.budget_bits = 3.7, .context_tokens = 256, .scored_tokens = 127});
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  EXPECT_EQ((*pairs)[0].k.bits + (*pairs)[0].v.bits, 4);
  EXPECT_EQ((*pairs)[1].k.bits + (*pairs)[1].v.bits, 8);
}

TEST_F(CalibrateToyModel, LayersMayHaveFormatsOfTheirOwn) {
  SessionOptions options;
  options.kv.layers = {{*ParseFormat("tq4:mean:bal:n8", Side::kK), kFormatF16},
                       {kFormatF32, *ParseFormat("fit3", Side::kV)}};
  options.kv.calibration = calibration_;
  Result<Session> session = Session::Create(*model_, options);
  ASSERT_TRUE(session.ok()) << session.status().message();
  EXPECT_EQ(session->layer_formats(), options.kv.layers);
  EXPECT_TRUE(session->Prefill(ToyTokens(300, model_->vocab_size())).ok());
  options.kv.layers.pop_back();
  options.kv.layers.shrink_to_fit();  // so that a read behind the end is one behind the memory
  EXPECT_EQ(Session::Create(*model_, options).status().code(), StatusCode::kInvalidArgument);
}

// A model whose values are all the same has no four levels.
TEST(Calibrate, ASideWithoutValuesIsNamed) {
  ToyModel toy;
  for (float& x : toy.tensors["blk.1.attn_v.weight"].values) x = 0;
  const Result<Model> model = toy.Load("calibrate_zero");
  ASSERT_TRUE(model.ok());
  const auto text = ToyTokens(256, model->vocab_size());
  const Status status =
      Calibrate(*model, text, {.max_tokens = 256, .sequence_tokens = 256}).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("V of layer 1"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace kvant
