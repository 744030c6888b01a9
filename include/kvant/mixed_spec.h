// MixedSpec: a cache whose tokens have several widths. When a page leaves the window, a policy
// gives each of its tokens a width; a head keeps the tokens of one width together, in pages of
// their own.
//
// Thread rules: plain values; the policy is only read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/format.h"
#include "kvant/status.h"

namespace kvant {

struct HeadClasses;  // kvant/head_classes.h
class Policy;        // kvant/policy.h

// How the tokens of one width are stored.
struct MixedPool {
  int width = 0;  // 16, 8, 4, 3 or 2: the name by which the policy knows the pool
  FormatPair formats;
  bool operator==(const MixedPool&) const = default;
};

struct MixedSpec {
  std::vector<MixedPool> pools;  // wider first, each width once; width 0 drops and needs no pool
  std::shared_ptr<const Policy> policy;
  // True: a width is final, and the policy's word on tokens that are stored already is not taken.
  // False: they may become narrower whenever a page leaves the window, which takes formats that
  // keep each token apart (Format::by_token).
  bool once = false;
  // What the tokens of one sequence may take in all these layers, sinks and window among them; each
  // KV head has an equal share. 0: no bound. Not with `once`.
  int64_t budget_bytes = 0;
  // Layers whose tokens have one width, as KvSpec::k and v say: those that see a window only.
  std::vector<int> one_width_layers = {};
  // Null: the policy is asked for every head. Else for those that the classes keep full; the others
  // keep their first and newest tokens only, at the widest pool's width, and what they need of the
  // budget comes first.
  std::shared_ptr<const HeadClasses> heads = nullptr;
};

// "8=int8+4=int4:token+2=K/V": WIDTH=FORMATS, formats as ParseKvPreset takes them (its sinks and
// window are not read). Width 16 is f16, "16" alone says so. kInvalidArgument names the part that
// is wrong.
Result<std::vector<MixedPool>> ParseMixedPools(std::string_view text);
// "8=K/V+4=K/V", which ParseMixedPools reads back.
std::string MixedPoolsText(const std::vector<MixedPool>& pools);

// "mixed:8=int8+2=int2+once": kMixedPrefix, pools as above, and "once" where widths are final. What
// comes back has neither policy nor budget.
inline constexpr std::string_view kMixedPrefix = "mixed:";
Result<MixedSpec> ParseMixedSpec(std::string_view text);

// Makes the spec a mixed one: spec->mixed, and k and v of the pool that says how vectors are
// rotated before they are stored (the widest pool where none does).
void SetMixed(MixedSpec mixed, KvSpec* spec);

bool IsMixedLayer(const KvSpec& spec, int layer);

// The spec as a cache holds it where some layers see a window only: their pools would hold tokens
// in no order, so they have one width. Specs of one width come back as they are.
//   layer_windows  [layers] tokens that a layer sees, 0: all; empty: all see all
KvSpec WithWindows(const KvSpec& spec, std::span<const int64_t> layer_windows);

// kInvalidArgument where the spec has head classes that were found for another model
// (Model::file_hash()).
Status CheckMixedModel(const KvSpec& spec, uint64_t model_hash);

// kUnsupported where a cache with this spec cannot be saved or loaded: a snapshot holds no head
// classes.
Status CheckMixedSnapshot(const KvSpec& spec);

// Part of CheckKvSpec. kInvalidArgument names what pools cannot share or hold: widths, pages of
// more than 64 tokens, keys before RoPE, rotations that differ, types other than f16 of what is not
// coded, formats that share among tokens where these may leave, widths of the policy without a
// pool.
Status CheckMixedSpec(const KvSpec& spec);

}  // namespace kvant
