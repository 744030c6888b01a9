// What tests ask of sessions.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "kvant/session.h"

namespace kvant {

inline Session MakeSession(const Model& model, const SessionOptions& options) {
  Result<Session> session = Session::Create(model, options);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return std::move(session).value();
}

inline std::vector<float> LogitsOf(Session& session) {
  const Result<std::span<const float>> logits = session.Logits();
  EXPECT_TRUE(logits.ok()) << logits.status().message();
  return {logits->begin(), logits->end()};
}

}  // namespace kvant
