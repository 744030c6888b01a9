#include "cache/snapshot_mixed.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cache/snapshot.h"
#include "format/format_bytes.h"
#include "format/layer_layouts.h"
#include "format/page_rule.h"

namespace kvant {
namespace {

constexpr uint32_t kMaxPools = 5;
constexpr uint64_t kMaxNameBytes = 4096;
constexpr size_t kLeastHeadBytes = sizeof(int32_t) + 1 + 3 * sizeof(int64_t);

Status ReadFlag(ByteCursor* cursor, bool* flag) {
  uint8_t byte = 0;
  KVANT_RETURN_IF_ERROR(cursor->ReadNumber("the header", &byte));
  *flag = byte != 0;
  return byte <= 1 ? Status::Ok() : Status::Corrupt("has a flag of " + std::to_string(byte));
}

Status ReadPools(const KvGeometry& g, ByteCursor* cursor, std::vector<MixedPool>* pools) {
  uint32_t count = 0;
  KVANT_RETURN_IF_ERROR(cursor->ReadNumber("the header", &count));
  if (count < 1 || count > kMaxPools) {
    return Status::Corrupt("claims " + std::to_string(count) + " widths");
  }
  for (uint32_t i = 0; i < count; ++i) {
    MixedPool& pool = pools->emplace_back();
    KVANT_RETURN_IF_ERROR(cursor->ReadNumber("the header", &pool.width));
    KVANT_RETURN_IF_ERROR(ReadFormat(Side::kK, cursor, &pool.formats.k));
    KVANT_RETURN_IF_ERROR(ReadFormat(Side::kV, cursor, &pool.formats.v));
    for (const Side side : {Side::kK, Side::kV}) {
      const Format& format = side == Side::kK ? pool.formats.k : pool.formats.v;
      const Status status = CheckFormat(format, side, g.head_dim);
      if (!status.ok()) return Status::Corrupt(status.message());
    }
    if (PageTokensFor(pool.formats.k, pool.formats.v) != kPageTokens) {
      return Status::Corrupt("claims pools of pages that are longer than 64 tokens");
    }
  }
  return Status::Ok();
}

Status ReadHead(size_t pools, ByteCursor* cursor, SavedMixedHead* head) {
  const auto read = [&](auto* number) { return cursor->ReadNumber("the header", number); };
  KVANT_RETURN_IF_ERROR(read(&head->sealed));
  KVANT_RETURN_IF_ERROR(ReadFlag(cursor, &head->can_undo));
  for (int64_t* count : {&head->requantised_tokens, &head->dropped_tokens, &head->dropped_before}) {
    KVANT_RETURN_IF_ERROR(read(count));
  }
  for (size_t j = 0; j < pools; ++j) {
    SavedPool& pool = head->pools.emplace_back();
    for (int64_t* count :
         {&pool.tokens, &pool.coded_tokens, &pool.tokens_before, &pool.coded_before}) {
      KVANT_RETURN_IF_ERROR(read(count));
    }
    KVANT_RETURN_IF_ERROR(ReadFlag(cursor, &pool.has_spare));
  }
  return Status::Ok();
}

// Whether tokens of which so many are coded can stand in a pool.
bool IsPossible(bool codes_at_once, int64_t tokens, int64_t coded) {
  if (codes_at_once) return coded == tokens;
  return coded >= 0 && coded % kPageTokens == 0 && tokens >= coded && tokens - coded < kPageTokens;
}

bool IsPossible(const MixedPool& from, bool can_undo, const SavedPool& pool) {
  const bool at_once = IsByToken(from.formats);
  if (!IsPossible(at_once, pool.tokens, pool.coded_tokens) ||
      !IsPossible(at_once, pool.tokens_before, pool.coded_before) ||
      pool.tokens_before > pool.tokens) {
    return false;
  }
  if (!can_undo && pool.tokens_before != pool.tokens) return false;
  // The tail that was coded since is the spare one.
  return at_once
             ? !pool.has_spare
             : pool.coded_tokens == pool.coded_before + (pool.has_spare ? int64_t{kPageTokens} : 0);
}

// Tokens of so many pages, less the sinks.
int64_t TokensOf(const SnapshotHeader& h, int64_t pages) {
  return std::max<int64_t>(0, pages * kPageTokens - h.kv.sinks_tokens);
}

bool IsPossible(const SnapshotHeader& h, int64_t due_pages, const SavedMixedHead& head) {
  // A page that came for a step that was abandoned stays where others left for it.
  const bool is_ahead =
      head.sealed == due_pages + 1 && h.length % kPageTokens == 0 && h.length > 0 && !head.can_undo;
  if (head.sealed != due_pages && !is_ahead) return false;
  if (head.can_undo && head.sealed == 0) return false;
  const int64_t most = TokensOf(h, head.sealed);
  int64_t tokens = head.dropped_tokens, before = head.dropped_before;
  for (const int64_t count : {head.dropped_tokens, head.dropped_before, head.requantised_tokens}) {
    if (count < 0) return false;
  }
  if (tokens > most || before > most) return false;
  for (size_t j = 0; j < head.pools.size(); ++j) {
    const SavedPool& pool = head.pools[j];
    if (pool.tokens < 0 || pool.tokens_before < 0 || pool.tokens > most) return false;
    if (!IsPossible(h.widths.pools[j], head.can_undo, pool)) return false;
    tokens += pool.tokens;
    before += pool.tokens_before;
  }
  return tokens == most && before == (head.can_undo ? TokensOf(h, head.sealed - 1) : most);
}

int64_t PoolBytes(const MixedPool& from, const SavedPool& pool, int head_dim,
                  const PageLayout& open) {
  const PageLayout coded = MakePageLayout(from.formats.k, from.formats.v, head_dim, kPageTokens);
  return pool.tokens * static_cast<int64_t>(sizeof(int32_t)) +
         pool.coded_pages() * coded.page_bytes + pool.pages_as_written() * open.page_bytes;
}

// Sums of one head: of sinks, pools and open pages, as HeadMass has them.
int64_t SumsOf(const SnapshotHeader& h, const SavedMixedHead& head) {
  if (h.widths.sums == 0) return 0;
  const int64_t sinks = std::min<int64_t>(h.kv.sinks_tokens, h.length);
  int64_t tokens = sinks + h.length - std::max(sinks, int64_t{head.sealed} * kPageTokens);
  for (const SavedPool& pool : head.pools) tokens += pool.tokens;
  return h.widths.sums * tokens;
}

bool AreSums(const std::byte* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    std::memcpy(&sum, from + i * static_cast<int64_t>(sizeof sum), sizeof sum);
    if (!std::isfinite(sum) || sum < 0) return false;
  }
  return true;
}

}  // namespace

void WriteWidths(const SavedWidths& widths, bool with_sums, ByteWriter* writer) {
  writer->Number(static_cast<uint32_t>(widths.pools.size()));
  for (const MixedPool& pool : widths.pools) {
    writer->Number(int32_t{pool.width});
    writer->String(FormatSpec(pool.formats.k));
    writer->String(FormatSpec(pool.formats.v));
  }
  writer->Number(static_cast<uint8_t>(widths.once));
  writer->Number(widths.budget_bytes);
  writer->String(widths.policy);
  if (with_sums) writer->Number(int32_t{widths.sums});
  for (const int first : widths.first_head) writer->Number(static_cast<uint8_t>(first >= 0));
  for (const SavedMixedHead& head : widths.heads) {
    writer->Number(head.sealed);
    writer->Number(static_cast<uint8_t>(head.can_undo));
    for (const int64_t count :
         {head.requantised_tokens, head.dropped_tokens, head.dropped_before}) {
      writer->Number(count);
    }
    for (const SavedPool& pool : head.pools) {
      for (const int64_t count :
           {pool.tokens, pool.coded_tokens, pool.tokens_before, pool.coded_before}) {
        writer->Number(count);
      }
      writer->Number(static_cast<uint8_t>(pool.has_spare));
    }
  }
}

Status ReadWidths(const KvGeometry& g, bool with_sums, ByteCursor* cursor, SavedWidths* widths) {
  KVANT_RETURN_IF_ERROR(ReadPools(g, cursor, &widths->pools));
  KVANT_RETURN_IF_ERROR(ReadFlag(cursor, &widths->once));
  KVANT_RETURN_IF_ERROR(cursor->ReadNumber("the header", &widths->budget_bytes));
  std::string_view policy;
  KVANT_RETURN_IF_ERROR(cursor->ReadString("the policy", kMaxNameBytes, &policy));
  widths->policy = policy;
  if (with_sums) {
    KVANT_RETURN_IF_ERROR(cursor->ReadNumber("the header", &widths->sums));
    if (widths->sums != 1 && widths->sums != g.group_ratio()) {
      return Status::Corrupt("claims " + std::to_string(widths->sums) +
                             " sums of attention a token");
    }
  }
  int mixed_heads = 0;
  for (int layer = 0; layer < g.layers; ++layer) {
    bool is_mixed = false;
    KVANT_RETURN_IF_ERROR(ReadFlag(cursor, &is_mixed));
    widths->first_head.push_back(is_mixed ? mixed_heads : -1);
    mixed_heads += is_mixed ? g.kv_heads : 0;
  }
  KVANT_RETURN_IF_ERROR(
      cursor->CheckFits("the header", static_cast<uint64_t>(mixed_heads), kLeastHeadBytes));
  for (int i = 0; i < mixed_heads; ++i) {
    KVANT_RETURN_IF_ERROR(ReadHead(widths->pools.size(), cursor, &widths->heads.emplace_back()));
  }
  return Status::Ok();
}

Status CheckWidths(const SnapshotHeader& h) {
  if (h.widths.empty()) return Status::Ok();
  if (h.page_tokens != kPageTokens) {
    return Status::Corrupt("claims tokens of several widths in pages of " +
                           std::to_string(h.page_tokens));
  }
  const PageRule rule = PageRule::Of(h.page_tokens, true, h.kv.window_tokens, 0);
  const int64_t due_pages = h.length == 0 ? 0 : rule.DuePages(h.length);
  for (int layer = 0; layer < h.geometry.layers; ++layer) {
    if (!h.widths.is_mixed(layer)) continue;
    const std::string name = "layer " + std::to_string(layer);
    if (h.windows[static_cast<size_t>(layer)] != 0) {
      return Status::Corrupt(name + " has several widths and a window");
    }
    for (int head = 0; head < h.geometry.kv_heads; ++head) {
      if (IsPossible(h, due_pages, h.widths.HeadOf(layer, head))) continue;
      return Status::Corrupt(name + ", KV head " + std::to_string(head) +
                             " claims tokens by width that do not fit a sequence of " +
                             std::to_string(h.length));
    }
  }
  return Status::Ok();
}

int64_t PooledBytes(const SnapshotHeader& h, int layer, int kv_head, const PageLayout& open) {
  const SavedMixedHead& head = h.widths.HeadOf(layer, kv_head);
  int64_t bytes = 0;
  for (size_t j = 0; j < head.pools.size(); ++j) {
    bytes += PoolBytes(h.widths.pools[j], head.pools[j], h.geometry.head_dim, open);
  }
  return bytes + SumsOf(h, head) * static_cast<int64_t>(sizeof(float));
}

Status CheckPooled(const SnapshotHeader& h, int layer, std::span<const std::byte> bytes) {
  const auto at = static_cast<size_t>(layer);
  const LayerLayouts layouts =
      MakeLayerLayouts(h.kv.layers[at], true, h.geometry, h.page_tokens, h.kv.sinks_tokens);
  const std::byte* from = bytes.data();
  for (int kv_head = 0; kv_head < h.geometry.kv_heads; ++kv_head) {
    const SavedMixedHead& head = h.widths.HeadOf(layer, kv_head);
    if (h.HoldsSinks(layer)) from += layouts.sink.page_bytes;
    std::vector<int32_t> positions;
    for (size_t j = 0; j < head.pools.size(); ++j) {
      const auto count = static_cast<size_t>(head.pools[j].tokens);
      positions.resize(positions.size() + count);
      if (count > 0) std::memcpy(&*(positions.end() - count), from, count * sizeof(int32_t));
      from += PoolBytes(h.widths.pools[j], head.pools[j], h.geometry.head_dim, layouts.open);
    }
    std::sort(positions.begin(), positions.end());
    const auto twice = std::adjacent_find(positions.begin(), positions.end());
    if (!positions.empty() && (twice != positions.end() || positions.front() < h.kv.sinks_tokens ||
                               positions.back() >= int64_t{head.sealed} * kPageTokens)) {
      return Status::Corrupt("layer " + std::to_string(layer) + ", KV head " +
                             std::to_string(kv_head) +
                             " has a position twice or where none of several widths can be");
    }
    const int64_t sums = SumsOf(h, head);
    if (!AreSums(from, sums)) {
      return Status::Corrupt("layer " + std::to_string(layer) + ", KV head " +
                             std::to_string(kv_head) +
                             " has sums of attention that no attention gives");
    }
    from += sums * static_cast<int64_t>(sizeof(float));
    from += int64_t{h.open[at].count()} * layouts.open.page_bytes;
  }
  return Status::Ok();
}

}  // namespace kvant
