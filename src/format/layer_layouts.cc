#include "format/layer_layouts.h"

#include <algorithm>

namespace kvant {

int PageTokensOf(const KvSpec& spec, int layers) {
  int tokens = kPageTokens;
  for (int layer = 0; layer < layers; ++layer) {
    const FormatPair formats = LayerFormats(spec, layer);
    tokens = std::max(tokens, PageTokensFor(formats.k, formats.v));
  }
  return tokens;
}

LayerLayouts MakeLayerLayouts(const FormatPair& formats, bool is_mixed, HeadChannels channels,
                              int page_tokens, int sinks_tokens) {
  LayerLayouts layouts;
  layouts.coded = is_mixed || IsCoded(formats);
  layouts.searched = !is_mixed && IsSearched(formats);
  layouts.stored = MakePageLayout(formats.k, formats.v, channels, page_tokens);
  layouts.open = layouts.stored;
  if (!layouts.coded) return layouts;
  const FormatPair open = OpenFormats(formats);
  layouts.open = MakePageLayout(open.k, open.v, channels, page_tokens);
  if (sinks_tokens > 0) {
    const int tokens = DivideUp(sinks_tokens, kLaneBlock) * kLaneBlock;
    layouts.sink = MakePageLayout(open.k, open.v, channels, tokens);
  }
  return layouts;
}

}  // namespace kvant
