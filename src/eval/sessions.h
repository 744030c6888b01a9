// A base and the caches that are compared with it, side by side.
#pragma once

#include <span>
#include <vector>

#include "kvant/session.h"

namespace kvant {

// The base first, then one session a test, all on one thread pool and otherwise as `options` say,
// whose kv is not read. The errors of Session::Create.
Result<std::vector<Session>> MakeSessions(const Model& model, const KvSpec& base,
                                          std::span<const KvSpec> tests, SessionOptions options);

}  // namespace kvant
