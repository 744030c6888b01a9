// Head classes (DuoAttention, arXiv 2410.10819): heads that retrieve keep all tokens, the others
// the first and the newest ones only. A gate between 0 and 1 for each KV head says how much it
// suffers from that; how many heads stay full is decided afterwards.
//
// Thread rules: plain values, pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/status.h"

namespace kvant {

// What a file of head classes holds.
struct HeadClasses {
  uint64_t model_hash = 0;  // Model::file_hash() of the model that the gates were found for
  int layers = 0;
  int kv_heads = 0;
  int first_tokens = 64;  // what streaming heads keep
  int recent_tokens = 256;
  double sparsity = 0.5;     // share of the heads that stream; 0 none, 1 all
  std::vector<float> gates;  // [layers][kv_heads], 0 to 1

  bool operator==(const HeadClasses&) const = default;
};

// kCorrupt with what is wrong unless every part has its shape and range.
Status CheckHeadClasses(const HeadClasses& classes);

// A file's text: JSON with a version and a checksum of its contents; layout and order do not
// matter, an unknown or missing member does. Print REQUIRES CheckHeadClasses(). Parse: kUnsupported
// for another version, kCorrupt for anything else that does not hold what it claims.
std::string PrintHeadClasses(const HeadClasses& classes);
Result<HeadClasses> ParseHeadClasses(std::string_view text);

// The gate that a head needs to stay full: the quantile of the gates at `sparsity`, between the two
// next to it in proportion.
double GateThreshold(std::span<const float> gates, double sparsity);
// [gates] 1 where a head stays full: those at the threshold or above. Of equal gates the first ones
// stay full, so that their number does not depend on ties.
std::vector<uint8_t> FullHeads(std::span<const float> gates, double sparsity);

// "streaming:FIRST,RECENT", the policy of the heads that stream.
std::string StreamingSpec(const HeadClasses& classes);

// Tokens of f16 caches over those that these classes leave, at `length` tokens; streaming heads
// keep at most streaming_tokens. full_share: of the heads.
double HeadClassesRatio(int64_t length, double full_share, int64_t streaming_tokens);

// A head's output while its gate is sought: gate * full + (1 - gate) * streaming.
void GatedOutput(float gate, std::span<const float> full, std::span<const float> streaming,
                 std::span<float> out);

}  // namespace kvant
