#include "eval/logit_base.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace kvant {
namespace {

constexpr char kMagic[8] = {'_', 'l', 'o', 'g', 'i', 't', 's', '_'};
constexpr int64_t kHeadBytes = 20;
constexpr float kRangeNats = 16;  // a row's top to the least that is told apart
constexpr float kTopCode = 65535;
constexpr int32_t kMaxCtx = 1 << 24, kMaxVocab = 1 << 24;

Status Corrupt(const std::string& path, const std::string& what) {
  return Status::Corrupt(path + ": " + what);
}

// Everything but the tokens, which a file of this length may or may not hold.
Status ReadHead(const std::string& path, std::span<const std::byte> bytes,
                LogitBaseSummary* summary) {
  if (bytes.size() < kHeadBytes || std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    return Corrupt(path, "is not a file of base logits: it does not begin with '_logits_'");
  }
  int32_t numbers[3];
  std::memcpy(numbers, bytes.data() + sizeof(kMagic), sizeof(numbers));
  const auto [ctx, vocab, chunks] = numbers;
  if (ctx < 4 || ctx > kMaxCtx || vocab < 1 || vocab > kMaxVocab || chunks < 1) {
    return Corrupt(path, "cannot hold " + std::to_string(chunks) + " chunks of " +
                             std::to_string(ctx) + " tokens over a vocabulary of " +
                             std::to_string(vocab));
  }
  summary->ctx_tokens = ctx;
  summary->vocab = vocab;
  summary->chunks = chunks;
  return Status::Ok();
}

// One row as the file holds it, padding included.
void EncodeRow(const float* logits, int64_t vocab, std::byte* out) {
  const auto [low, high] = std::minmax_element(logits, logits + vocab);
  const float top = *high, least = std::max(*low, top - kRangeNats);
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(logits[i] - top));
  const float step = (top - least) / kTopCode;
  const float least_log_p = static_cast<float>(static_cast<double>(least - top) - std::log(sum));
  std::memcpy(out, &step, sizeof(step));
  std::memcpy(out + 4, &least_log_p, sizeof(least_log_p));
  for (int64_t i = 0; i < vocab; ++i) {
    const float steps = step > 0 ? std::max(0.0f, logits[i] - least) / step : 0.0f;
    const uint16_t code = static_cast<uint16_t>(std::lrint(std::min(steps, kTopCode)));
    std::memcpy(out + 8 + 2 * i, &code, sizeof(code));
  }
}

}  // namespace

Result<LogitBaseReader> LogitBaseReader::Open(const std::string& path) {
  LogitBaseReader reader;
  reader.path_ = path;
  KVANT_ASSIGN_OR_RETURN(reader.file_, MappedFile::Open(path));
  const std::span<const std::byte> bytes = reader.file_.bytes();
  LogitBaseSummary& s = reader.summary_;
  KVANT_RETURN_IF_ERROR(ReadHead(path, bytes, &s));
  // The first product is below 2^57; rows times their bytes could overflow, so it is divided by.
  const int64_t size = static_cast<int64_t>(bytes.size());
  const int64_t token_bytes = s.chunks * s.ctx_tokens * 4;
  const int64_t rows = s.chunks * LogitRowsOf(s.ctx_tokens), row_bytes = LogitRowBytes(s.vocab);
  const int64_t left = size - kHeadBytes - token_bytes;
  if (left < 0 || left / row_bytes != rows || left % row_bytes != 0) {
    return Corrupt(path, "has " + std::to_string(size) + " bytes, which is not the length of " +
                             std::to_string(s.chunks) + " chunks of " +
                             std::to_string(s.ctx_tokens) + " tokens over a vocabulary of " +
                             std::to_string(s.vocab) + ": it is cut or damaged");
  }
  s.tokens.resize(static_cast<size_t>(s.chunks * s.ctx_tokens));
  std::memcpy(s.tokens.data(), bytes.data() + kHeadBytes, static_cast<size_t>(token_bytes));
  reader.rows_offset_ = kHeadBytes + token_bytes;
  return reader;
}

Status LogitBaseReader::CheckFits(std::span<const int32_t> text, int64_t ctx, int64_t vocab) const {
  const auto differs = [&](const std::string& what, int64_t theirs, int64_t ours) {
    return Status::InvalidArgument(path_ + ": was made with " + what + " of " +
                                   std::to_string(theirs) + ", here it is " + std::to_string(ours));
  };
  if (ctx != summary_.ctx_tokens) return differs("a context", summary_.ctx_tokens, ctx);
  if (vocab != summary_.vocab) return differs("a vocabulary", summary_.vocab, vocab);
  const size_t whole = text.size() - text.size() % static_cast<size_t>(ctx);
  for (size_t i = 0; i < std::min(whole, summary_.tokens.size()); ++i) {
    if (summary_.tokens[i] == text[i]) continue;
    return Status::InvalidArgument(path_ + ": was made from another text: its token " +
                                   std::to_string(i) + " is " + std::to_string(summary_.tokens[i]) +
                                   ", here it is " + std::to_string(text[i]));
  }
  return Status::Ok();
}

void LogitBaseReader::ReadRow(int64_t index, uint16_t* codes, CodedRow* row) const {
  const std::byte* at = file_.bytes().data() + rows_offset_ + index * LogitRowBytes(summary_.vocab);
  std::memcpy(&row->step, at, sizeof(row->step));
  std::memcpy(&row->least, at + 4, sizeof(row->least));
  std::memcpy(codes, at + 8, sizeof(uint16_t) * static_cast<size_t>(summary_.vocab));
  row->codes = codes;
}

Result<LogitBaseSummary> ReadLogitBase(const std::string& path) {
  KVANT_ASSIGN_OR_RETURN(const LogitBaseReader reader, LogitBaseReader::Open(path));
  return reader.summary();
}

Result<LogitBaseWriter> LogitBaseWriter::Create(const std::string& path, int64_t ctx, int64_t vocab,
                                                std::span<const int32_t> tokens) {
  KVANT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  const int64_t chunks = static_cast<int64_t>(tokens.size()) / ctx;
  const int32_t numbers[3] = {static_cast<int32_t>(ctx), static_cast<int32_t>(vocab),
                              static_cast<int32_t>(chunks)};
  KVANT_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(kMagic))));
  KVANT_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(numbers))));
  KVANT_RETURN_IF_ERROR(file.Write(std::as_bytes(tokens)));
  return LogitBaseWriter(std::move(file), vocab, chunks * LogitRowsOf(ctx));
}

Status LogitBaseWriter::Add(const float* logits, int64_t rows) {
  const int64_t row_bytes = LogitRowBytes(vocab_);
  bytes_.assign(static_cast<size_t>(rows * row_bytes), std::byte{0});
  for (int64_t r = 0; r < rows; ++r) {
    EncodeRow(logits + r * vocab_, vocab_, bytes_.data() + r * row_bytes);
  }
  missing_rows_ -= rows;
  return file_.Write(bytes_);
}

Status LogitBaseWriter::Commit() {
  if (missing_rows_ != 0) {
    return Status::InvalidArgument("a base file lacks " + std::to_string(missing_rows_) + " rows");
  }
  return file_.Commit();
}

}  // namespace kvant
