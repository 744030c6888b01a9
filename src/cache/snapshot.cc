#include "cache/snapshot.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/byte_cursor.h"
#include "base/byte_writer.h"
#include "base/xxh64.h"
#include "format/format_bytes.h"
#include "format/layer_layouts.h"
#include "format/page_rule.h"

namespace kvant {
namespace {

constexpr std::array<char, 8> kMagic = {'k', 'v', 'a', 'n', 't', 's', 'e', 'q'};
// Versions.
constexpr uint32_t kOneWidth = 1, kSeveralWidths = 2, kLatent = 3, kWidthsWithSums = 4;
// Raised when a byte moves in a page: tests/golden/page_bytes_test.cc.
constexpr uint32_t kPageLayoutVersion = 1;
constexpr uint64_t kMaxHeaderBytes = uint64_t{1} << 24;
constexpr uint64_t kMaxStateBytes = uint64_t{1} << 30;
constexpr int64_t kMaxLength = int64_t{1} << 30;

// magic, the two versions, bytes of the header
constexpr size_t kEnvelopeBytes = kMagic.size() + 2 * sizeof(uint32_t) + sizeof(uint64_t);

Status CheckHash(const std::string& what, std::span<const std::byte> bytes, uint64_t hash) {
  if (hash == Xxh64(bytes)) return Status::Ok();
  return Status::Corrupt(what + " is damaged: its checksum does not fit its bytes");
}

Status CheckVersion(const char* what, uint32_t found, uint32_t least, uint32_t most) {
  if (found >= least && found <= most) return Status::Ok();
  return Status::Unsupported("is a snapshot of " + std::string(what) + " version " +
                             std::to_string(found) + "; this build reads version " +
                             std::to_string(least) +
                             (least == most ? "" : " to " + std::to_string(most)));
}

struct Envelope {
  uint32_t version = 0;
  std::span<const std::byte> header;  // without its hash
};

// Name and versions before the checksum: another kind or version of file is no damage.
Result<Envelope> ReadEnvelope(std::span<const std::byte> bytes) {
  if (!IsSnapshot(bytes)) return Status::Corrupt("is no snapshot");
  ByteCursor cursor(bytes);
  Envelope envelope;
  uint32_t layout_version = 0;
  uint64_t header_bytes = 0, hash = 0;
  KVANT_RETURN_IF_ERROR(cursor.Skip("its name", 1, kMagic.size()));
  KVANT_RETURN_IF_ERROR(cursor.ReadNumber("the header", &envelope.version));
  KVANT_RETURN_IF_ERROR(CheckVersion("file", envelope.version, kOneWidth, kWidthsWithSums));
  KVANT_RETURN_IF_ERROR(cursor.ReadNumber("the header", &layout_version));
  KVANT_RETURN_IF_ERROR(
      CheckVersion("page layout", layout_version, kPageLayoutVersion, kPageLayoutVersion));
  KVANT_RETURN_IF_ERROR(cursor.ReadNumber("the header", &header_bytes));
  if (header_bytes < kEnvelopeBytes || header_bytes > kMaxHeaderBytes) {
    return Status::Corrupt("claims a header of " + std::to_string(header_bytes) + " bytes");
  }
  KVANT_RETURN_IF_ERROR(cursor.Skip("the header", header_bytes - kEnvelopeBytes, 1));
  envelope.header = cursor.Since(0);
  KVANT_RETURN_IF_ERROR(cursor.ReadNumber("the header", &hash));
  KVANT_RETURN_IF_ERROR(CheckHash("the header", envelope.header, hash));
  return envelope;
}

Status ReadRange(int64_t pages, ByteCursor* cursor, PageRange* range) {
  KVANT_RETURN_IF_ERROR(cursor->ReadNumber("the header", &range->first));
  KVANT_RETURN_IF_ERROR(cursor->ReadNumber("the header", &range->end));
  if (range->first >= 0 && range->first <= range->end && range->end <= pages) return Status::Ok();
  return Status::Corrupt("claims the pages " + std::to_string(range->first) + " to " +
                         std::to_string(range->end) + " of " + std::to_string(pages));
}

Status ReadWindow(ByteCursor* cursor, int64_t* window_tokens) {
  KVANT_RETURN_IF_ERROR(cursor->ReadNumber("the header", window_tokens));
  if (*window_tokens >= 0 && *window_tokens <= kMaxLayerWindow) return Status::Ok();
  return Status::Corrupt("claims a window of " + std::to_string(*window_tokens) + " tokens");
}

// A sequence that was cut or shifted may hold less than one that grew to its length, but all that
// is read from there on; none holds more.
Status CheckPages(const SnapshotHeader& h, int layer) {
  if (h.length == 0) return Status::Ok();
  const auto at = static_cast<size_t>(layer);
  const FormatPair& pair = h.kv.layers[at];
  const PageRule rule = PageRule::Of(h.page_tokens, IsCoded(pair) || h.widths.is_mixed(layer),
                                     h.kv.window_tokens, h.windows[at]);
  const PageRange &stored = h.stored[at], &open = h.open[at];
  const std::string name = "layer " + std::to_string(layer);
  if (stored.end != rule.DuePages(h.length) || open.end != rule.PagesOf(h.length) ||
      rule.EarliestCut(open.first, stored.first) > h.length) {
    return Status::Corrupt(name + " lacks pages that " + std::to_string(h.length) + " tokens need");
  }
  if (stored.first < rule.FirstStored(h.length) || open.first < rule.FirstOpen(h.length)) {
    return Status::Corrupt(name + " has pages that " + std::to_string(h.length) +
                           " tokens have passed");
  }
  return Status::Ok();
}

struct SectionSizes {
  uint64_t tokens = 0, state_bytes = 0;
};

Status CheckNumbers(const SnapshotHeader& h, const SectionSizes& sizes) {
  if (h.length < 0 || h.length > kMaxLength) {
    return Status::Corrupt("claims " + std::to_string(h.length) + " tokens");
  }
  if (sizes.tokens != 0 && sizes.tokens != static_cast<uint64_t>(h.length)) {
    return Status::Corrupt("names " + std::to_string(sizes.tokens) + " tokens and holds " +
                           std::to_string(h.length));
  }
  if (sizes.state_bytes > kMaxStateBytes) {
    return Status::Corrupt("claims a state of " + std::to_string(sizes.state_bytes) + " bytes");
  }
  return Status::Ok();
}

// A calibration is not part of a snapshot, so formats are checked one by one.
Status CheckSpec(const SnapshotHeader& h) {
  KvSpec policy = h.kv;
  policy.layers.clear();
  KVANT_RETURN_IF_ERROR(CheckKvSpec(policy, h.geometry));
  for (const FormatPair& pair : h.kv.layers) {
    KVANT_RETURN_IF_ERROR(CheckFormat(pair.k, Side::kK, h.geometry.k_channels()));
    KVANT_RETURN_IF_ERROR(CheckFormat(pair.v, Side::kV, h.geometry.v_channels()));
  }
  if (h.page_tokens == PageTokensOf(h.kv, h.geometry.layers)) return Status::Ok();
  return Status::Corrupt("claims pages of " + std::to_string(h.page_tokens) + " tokens");
}

Status ReadGeometry(uint32_t version, ByteCursor* cursor, KvGeometry* g) {
  for (int* number : {&g->layers, &g->kv_heads, &g->head_dim, &g->q_heads}) {
    KVANT_RETURN_IF_ERROR(cursor->ReadNumber("the header", number));
  }
  if (version == kLatent) {
    KVANT_RETURN_IF_ERROR(cursor->ReadNumber("the header", &g->latent_dim));
    if (!g->is_latent()) return Status::Corrupt("claims a latent of no channels");
  }
  const Status status = CheckGeometry(*g);
  return status.ok() ? status : Status::Corrupt(status.message());
}

Status ReadHeader(uint32_t version, ByteCursor* cursor, SnapshotHeader* h, SectionSizes* sizes) {
  const auto read = [&](auto* number) { return cursor->ReadNumber("the header", number); };
  KVANT_RETURN_IF_ERROR(read(&h->model_hash));
  KVANT_RETURN_IF_ERROR(read(&h->calibration_hash));
  KvGeometry& g = h->geometry;
  KVANT_RETURN_IF_ERROR(ReadGeometry(version, cursor, &g));
  for (int* number : {&h->kv.sinks_tokens, &h->kv.window_tokens, &h->page_tokens}) {
    KVANT_RETURN_IF_ERROR(read(number));
  }
  KVANT_RETURN_IF_ERROR(read(&h->length));
  KVANT_RETURN_IF_ERROR(read(&sizes->tokens));
  KVANT_RETURN_IF_ERROR(read(&sizes->state_bytes));
  KVANT_RETURN_IF_ERROR(CheckNumbers(*h, *sizes));
  if (h->page_tokens < kPageTokens) return Status::Corrupt("claims pages of less than 64 tokens");
  const int64_t pages = (h->length + h->page_tokens - 1) / h->page_tokens;
  for (int layer = 0; layer < g.layers; ++layer) {
    FormatPair& pair = h->kv.layers.emplace_back();
    KVANT_RETURN_IF_ERROR(ReadFormat(Side::kK, cursor, &pair.k));
    KVANT_RETURN_IF_ERROR(ReadFormat(Side::kV, cursor, &pair.v));
    KVANT_RETURN_IF_ERROR(ReadWindow(cursor, &h->windows.emplace_back()));
    KVANT_RETURN_IF_ERROR(ReadRange(pages, cursor, &h->stored.emplace_back()));
    KVANT_RETURN_IF_ERROR(ReadRange(pages, cursor, &h->open.emplace_back()));
  }
  if (const Status s = CheckSpec(*h); !s.ok()) return Status::Corrupt(s.message());
  const bool with_sums = version == kWidthsWithSums;
  if (with_sums || version == kSeveralWidths) {
    KVANT_RETURN_IF_ERROR(ReadWidths(g, with_sums, cursor, &h->widths));
  }
  for (int layer = 0; layer < g.layers; ++layer) KVANT_RETURN_IF_ERROR(CheckPages(*h, layer));
  return CheckWidths(*h);
}

// Of all heads of a layer.
int64_t LayerBytes(const SnapshotHeader& h, int layer) {
  const auto at = static_cast<size_t>(layer);
  const bool is_mixed = h.widths.is_mixed(layer);
  const LayerLayouts layouts =
      MakeLayerLayouts(h.kv.layers[at], is_mixed, h.geometry, h.page_tokens, h.kv.sinks_tokens);
  const int64_t sink_bytes = h.HoldsSinks(layer) ? layouts.sink.page_bytes : 0;
  int64_t bytes =
      h.geometry.kv_heads * (sink_bytes + int64_t{h.open[at].count()} * layouts.open.page_bytes);
  for (int head = 0; head < h.geometry.kv_heads; ++head) {
    bytes += is_mixed ? PooledBytes(h, layer, head, layouts.open)
                      : int64_t{h.stored[at].count()} * layouts.stored.page_bytes;
  }
  return bytes;
}

// Sections of a snapshot, walked by size first: what is cut short is told before anything is
// hashed.
class SectionReader {
 public:
  explicit SectionReader(std::span<const std::byte> bytes) : cursor_(bytes) {}

  Status Skip(uint64_t header_bytes) {
    return cursor_.Skip("the header", 1, header_bytes + sizeof(uint64_t));
  }
  Status Take(const std::string& what, uint64_t count, uint64_t element_bytes,
              std::span<const std::byte>* section) {
    const size_t start = cursor_.position();
    KVANT_RETURN_IF_ERROR(cursor_.Skip(what, count, element_bytes));
    *section = cursor_.Since(start);
    uint64_t hash = 0;
    KVANT_RETURN_IF_ERROR(cursor_.ReadNumber(what, &hash));
    sections_.push_back({what, *section, hash});
    return Status::Ok();
  }
  Status CheckAll() const {
    if (cursor_.remaining() != 0) {
      return Status::Corrupt(std::to_string(cursor_.remaining()) + " bytes are left over");
    }
    for (const auto& [what, bytes, hash] : sections_) {
      KVANT_RETURN_IF_ERROR(CheckHash(what, bytes, hash));
    }
    return Status::Ok();
  }

 private:
  struct Section {
    std::string what;
    std::span<const std::byte> bytes;
    uint64_t hash;
  };
  ByteCursor cursor_;
  std::vector<Section> sections_;
};

uint32_t VersionOf(const SnapshotHeader& h) {
  if (h.geometry.is_latent()) return kLatent;  // which has no mixed widths
  if (h.widths.empty()) return kOneWidth;
  return h.widths.sums == 0 ? kSeveralWidths : kWidthsWithSums;
}

}  // namespace

bool IsSnapshot(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

Result<Snapshot> ParseSnapshot(std::span<const std::byte> bytes) {
  KVANT_ASSIGN_OR_RETURN(const Envelope envelope, ReadEnvelope(bytes));
  ByteCursor header(envelope.header);
  KVANT_RETURN_IF_ERROR(header.Skip("the header", 1, kEnvelopeBytes));
  Snapshot s;
  SectionSizes sizes;
  KVANT_RETURN_IF_ERROR(ReadHeader(envelope.version, &header, &s.header, &sizes));
  if (header.remaining() != 0) return Status::Corrupt("has a header that is too long");

  SectionReader reader(bytes);
  std::span<const std::byte> tokens;
  KVANT_RETURN_IF_ERROR(reader.Skip(envelope.header.size()));
  KVANT_RETURN_IF_ERROR(reader.Take("the list of tokens", sizes.tokens, sizeof(int32_t), &tokens));
  KVANT_RETURN_IF_ERROR(reader.Take("the state", sizes.state_bytes, 1, &s.state));
  for (int layer = 0; layer < s.header.geometry.layers; ++layer) {
    KVANT_RETURN_IF_ERROR(reader.Take("layer " + std::to_string(layer),
                                      static_cast<uint64_t>(LayerBytes(s.header, layer)), 1,
                                      &s.pages.emplace_back()));
  }
  KVANT_RETURN_IF_ERROR(reader.CheckAll());
  for (int layer = 0; layer < s.header.geometry.layers; ++layer) {
    if (!s.header.widths.is_mixed(layer)) continue;
    KVANT_RETURN_IF_ERROR(CheckPooled(s.header, layer, s.pages[static_cast<size_t>(layer)]));
  }
  s.tokens.resize(static_cast<size_t>(sizes.tokens));
  if (!tokens.empty()) std::memcpy(s.tokens.data(), tokens.data(), tokens.size());
  return s;
}

std::vector<std::byte> SnapshotFront(const SnapshotHeader& h, const SnapshotLabel& label) {
  const auto write_header = [&](uint64_t header_bytes) {
    const KvGeometry& g = h.geometry;
    ByteWriter writer;
    writer.Number(kMagic);
    writer.Number(VersionOf(h));
    writer.Number(kPageLayoutVersion);
    writer.Number(header_bytes);
    writer.Number(h.model_hash);
    writer.Number(h.calibration_hash);
    const auto write = [&](std::initializer_list<int> numbers) {
      for (const int number : numbers) writer.Number(int32_t{number});
    };
    write({g.layers, g.kv_heads, g.head_dim, g.q_heads});
    if (g.is_latent()) write({g.latent_dim});
    write({h.kv.sinks_tokens, h.kv.window_tokens, h.page_tokens});
    writer.Number(h.length);
    writer.Number(uint64_t{label.tokens.size()});
    writer.Number(uint64_t{label.state.size()});
    for (size_t layer = 0; layer < h.kv.layers.size(); ++layer) {
      writer.String(FormatSpec(h.kv.layers[layer].k));
      writer.String(FormatSpec(h.kv.layers[layer].v));
      writer.Number(h.windows[layer]);
      for (const PageRange& range : {h.stored[layer], h.open[layer]}) {
        writer.Number(int32_t{range.first});
        writer.Number(int32_t{range.end});
      }
    }
    if (!h.widths.empty()) WriteWidths(h.widths, VersionOf(h) == kWidthsWithSums, &writer);
    return writer;
  };
  ByteWriter front = write_header(write_header(0).bytes().size());
  front.Number(Xxh64(front.bytes()));
  for (const std::span<const std::byte> section : {std::as_bytes(label.tokens), label.state}) {
    front.Bytes(section);
    front.Number(Xxh64(section));
  }
  return {front.bytes().begin(), front.bytes().end()};
}

}  // namespace kvant
