// A stretch of a text's tokens as a timeline of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvant/tokenizer.h"

namespace kvant {

// Where the vocabulary asks for bos, it takes the place of the first token, as llama.cpp's
// perplexity tool has it: the rest stays where it is. REQUIRES: the stretch lies in the text.
inline std::vector<int32_t> ChunkOf(const Tokenizer& tokenizer, std::span<const int32_t> text,
                                    int64_t first, int64_t count) {
  const auto chunk = text.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  std::vector<int32_t> tokens(chunk.begin(), chunk.end());
  if (tokenizer.add_bos() && !tokens.empty()) tokens[0] = tokenizer.bos();
  return tokens;
}

}  // namespace kvant
