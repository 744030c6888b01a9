#include "eval/sessions.h"

#include <memory>
#include <utility>

#include "model/model_impl.h"
#include "model/session_impl.h"

namespace kvant {

Result<std::vector<Session>> MakeSessions(const Model& model, const KvSpec& base,
                                          std::span<const KvSpec> tests, SessionOptions options) {
  KVANT_ASSIGN_OR_RETURN(const std::shared_ptr<ThreadPool> pool,
                         ThreadPool::Create(ThreadCount(options.threads)));
  std::vector<Session> sessions;
  for (size_t i = 0; i <= tests.size(); ++i) {
    options.kv = i == 0 ? base : tests[i - 1];
    KVANT_ASSIGN_OR_RETURN(Session session, SessionMaker::Create(model, options, pool));
    sessions.push_back(std::move(session));
  }
  return sessions;
}

}  // namespace kvant
