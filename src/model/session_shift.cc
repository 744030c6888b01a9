// Session: making room in a full context.
#include <algorithm>
#include <string>

#include "kvant/session.h"
#include "model/model_impl.h"
#include "model/session_impl.h"

namespace kvant {

Result<ContextShift> Session::PlanShift(int64_t keep_tokens) const {
  if (keep_tokens < 0) {
    return Status::InvalidArgument("a shift cannot keep " + std::to_string(keep_tokens) +
                                   " tokens");
  }
  const Cache& cache = *impl_->engine->cache;
  const int64_t context = context_tokens(), page_tokens = cache.page_tokens();
  ContextShift shift;
  shift.keep_tokens = cache.PossibleKeep(keep_tokens);
  const int64_t half = (context - shift.keep_tokens) / 2;
  shift.drop_tokens = std::max(half / page_tokens, int64_t{1}) * page_tokens;
  Status status = cache.CheckShift(context, shift.keep_tokens, shift.drop_tokens);
  while (status.code() == StatusCode::kOutOfRange && shift.drop_tokens > page_tokens) {
    shift.drop_tokens -= page_tokens;
    status = cache.CheckShift(context, shift.keep_tokens, shift.drop_tokens);
  }
  if (!status.ok()) return status;
  return shift;
}

Status Session::Shift(const ContextShift& shift) {
  const Model::Impl& model = impl_->engine->model.impl();
  KVANT_RETURN_IF_ERROR(impl_->engine->cache->Shift(impl_->sequence, shift.keep_tokens,
                                                    shift.drop_tokens,
                                                    LayerRopes(model.config, model.weights)));
  const auto first = impl_->tokens.begin() + shift.keep_tokens;
  impl_->tokens.erase(first, first + shift.drop_tokens);
  return Status::Ok();
}

}  // namespace kvant
