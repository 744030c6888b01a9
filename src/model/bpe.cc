#include "model/bpe.h"

#include <algorithm>
#include <limits>
#include <string>

#include "model/unicode_bytes.h"

namespace kvant {
namespace {

Status BadMerge(size_t index, std::string_view merge, const std::string& reason) {
  return Status::Corrupt("merge " + std::to_string(index) + " '" + Beginning(merge) + "' " +
                         reason);
}

}  // namespace

Result<Bpe> Bpe::Create(const std::unordered_map<std::string_view, int32_t>& spelling_to_id,
                        std::span<const std::string_view> merges) {
  if (merges.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return Status::Corrupt("the vocabulary has " + std::to_string(merges.size()) + " merges");
  }
  const auto find = [&](std::string_view spelling) {
    const auto it = spelling_to_id.find(spelling);
    return it == spelling_to_id.end() ? -1 : it->second;
  };
  Bpe bpe;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string spelling;
    AppendUtf8(ByteStandIn(static_cast<uint8_t>(byte)), spelling);
    bpe.byte_tokens_[byte] = find(spelling);
  }
  bpe.merges_.reserve(merges.size());
  std::string joined;
  for (size_t i = 0; i < merges.size(); ++i) {
    const std::string_view merge = merges[i];
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      return BadMerge(i, merge, "is not two tokens with one space between them");
    }
    joined.assign(merge.substr(0, space)).append(merge.substr(space + 1));
    const int32_t left = find(merge.substr(0, space)), right = find(merge.substr(space + 1));
    const int32_t result = find(joined);
    if (left < 0 || right < 0)
      return BadMerge(i, merge, "joins a token that is not in the vocabulary");
    if (result < 0) return BadMerge(i, merge, "makes a token that is not in the vocabulary");
    bpe.merges_.try_emplace(Key(left, right), Merge{static_cast<int32_t>(i), result});
  }
  return bpe;
}

// Puts the pair that begins at symbol `left` on the heap if it is one that merges.
void Bpe::Consider(int32_t left, Scratch& scratch) const {
  const Scratch::Symbol& symbol = scratch.symbols[static_cast<size_t>(left)];
  if (symbol.next < 0) return;
  const int32_t right_token = scratch.symbols[static_cast<size_t>(symbol.next)].token;
  const auto it = merges_.find(Key(symbol.token, right_token));
  if (it == merges_.end()) return;
  scratch.heap.push_back({it->second.rank, left, symbol.token, right_token});
}

void Bpe::Append(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
  // Best rank on top, leftmost among equals.
  const auto after = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.clear();
  heap.clear();
  for (const char c : word) {
    const int32_t token = byte_tokens_[static_cast<uint8_t>(c)];
    if (token < 0) continue;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({token, index - 1, index + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  for (size_t i = 0; i + 1 < symbols.size(); ++i) Consider(static_cast<int32_t>(i), scratch);
  std::make_heap(heap.begin(), heap.end(), after);

  const auto push = [&](int32_t left) {
    const size_t before = heap.size();
    Consider(left, scratch);
    if (heap.size() != before) std::push_heap(heap.begin(), heap.end(), after);
  };
  while (!heap.empty()) {
    const Scratch::Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), after);
    heap.pop_back();
    // A merge in the meantime may have changed either side.
    Scratch::Symbol& left = symbols[static_cast<size_t>(best.left)];
    if (left.token != best.left_token || left.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.token != best.right_token) continue;
    left.token = merges_.find(Key(best.left_token, best.right_token))->second.result;
    right.token = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.left;
    if (left.previous >= 0) push(left.previous);
    push(best.left);
  }
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    out.push_back(symbols[static_cast<size_t>(i)].token);
  }
}

}  // namespace kvant
