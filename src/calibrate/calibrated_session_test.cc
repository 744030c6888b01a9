// A saved session whose formats read a calibration comes back with that calibration and no other.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "calibrate/toy_calibration_for_test.h"
#include "kvant/session.h"

namespace kvant {
namespace {

Session SessionOf(const Model& model, const std::string& kv,
                  std::shared_ptr<const Calibration> calibration) {
  KvSpec spec = *ParseKvPreset(kv);
  spec.calibration = std::move(calibration);
  Result<Session> session = Session::Create(model, {.kv = spec, .threads = 1});
  EXPECT_TRUE(session.ok()) << session.status().message();
  return std::move(session).value();
}

TEST(CalibratedSession, ComesBackWithItsCalibrationOnly) {
  const std::string path = testing::TempDir() + "kvant_calibrated.kv";
  const Model model = ToyModel().Load("calibrated").value();
  const auto mine = std::make_shared<const Calibration>(CalibrateToy(model));
  const auto other = std::make_shared<const Calibration>(CalibrateToy(model, 1));
  const std::vector<int32_t> tokens = ToyTokens(400, 40);
  for (const char* kv : {"tq4:mean:n8:rot/tq4:n8:rot", "fit3:mean:bal:n8/fit3:n8",
                         "int4:channel:g64:min:smooth/int4"}) {
    Session session = SessionOf(model, kv, mine);
    ASSERT_TRUE(session.Prefill(std::span(tokens).first(330)).ok());
    ASSERT_TRUE(session.Save(path).ok());
    Session loaded = SessionOf(model, kv, mine);
    const Status status = loaded.Load(path);
    ASSERT_TRUE(status.ok()) << kv << ": " << status.message();
    ASSERT_TRUE(session.Prefill(std::span(tokens).subspan(330)).ok());
    ASSERT_TRUE(loaded.Prefill(std::span(tokens).subspan(330)).ok());
    const std::span<const float> a = *session.Logits(), b = *loaded.Logits();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << kv;
    const Status refused = SessionOf(model, kv, other).Load(path);
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find("another calibration"), std::string::npos);
  }
}

}  // namespace
}  // namespace kvant
