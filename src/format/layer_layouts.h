// LayerLayouts: how the pages of one layer are laid out, from its formats alone.
// Thread rules: plain values.
#pragma once

#include "format/page_layout.h"

namespace kvant {

inline bool IsCoded(const FormatPair& formats) {
  return !formats.k.is_float() || !formats.v.is_float();
}
// Each token can be coded when it comes, and leave again: it shares no figures with others.
inline bool IsByToken(const FormatPair& formats) {
  return formats.k.by_token() && formats.v.by_token();
}

// The codes of a page are found by a search, which takes 2 to 6 times as long as rounding does.
inline bool IsSearched(const FormatPair& formats) {
  const auto searched = [](const Format& format) {
    return format.levels == Levels::kTrellis16 || format.levels == Levels::kTrellis64;
  };
  return searched(formats.k) || searched(formats.v);
}

struct LayerLayouts {
  bool coded = false;             // false: float on both sides, neither sinks nor window
  bool searched = false;          // pages are, where all tokens have one width
  PageLayout open, stored, sink;  // sink: where the layer has sinks

  bool has_sinks() const { return sink.tokens > 0; }
};

// Tokens of a page that serves all layers of a cache.
int PageTokensOf(const KvSpec& spec, int layers);

// REQUIRES: CheckFormat() holds for both sides; 0 <= sinks_tokens <= 64.
// is_mixed: tokens have several widths, so they are coded whatever `formats` say.
LayerLayouts MakeLayerLayouts(const FormatPair& formats, bool is_mixed, HeadChannels channels,
                              int page_tokens, int sinks_tokens);

}  // namespace kvant
