#include "explain_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "output.h"
#include "report.h"

namespace kvant::cli {
namespace {

std::string SideGroups(const Format& f, int head_dim, std::string_view side) {
  if (f.is_float()) return "";
  const int group =
      f.axis == Axis::kChannel ? f.group : (f.group == 0 ? head_dim : std::min(f.group, head_dim));
  return fmt::format("  {} shares {} bytes of metadata among {} consecutive {}.\n", side,
                     f.metadata_bytes_per_group(), group,
                     f.axis == Axis::kChannel ? "tokens of a channel" : "channels of a token");
}

std::string SetupText(const KvExplanation& e) {
  const KvGeometry& g = e.geometry;
  const std::string windows = LayerWindowsText(e.layer_windows);
  return fmt::format(
      "Shape    {}, {}, {} ({} per KV head)\n"
      "{}"
      "Context  {}, {}\n"
      "Formats  {}\n"
      "Device   {}, reads {}\n"
      "         ({})\n",
      Plural(g.layers, "layer"), CachedText(g), Plural(g.q_heads, "query head"), g.group_ratio(),
      windows.empty() ? "" : fmt::format("Windows  {}\n", windows),
      Plural(e.context_tokens, "token"), Plural(e.batch, "sequence"),
      LayerFormatsText(e.spec, g.layers), e.device.title, HumanRate(e.device.read_bytes_per_s),
      e.device.source);
}

std::string TokenText(const KvExplanation& e) {
  const KvGeometry& g = e.geometry;
  std::string text = "What one token costs\n";
  text += g.is_latent()
              ? fmt::format(
                    "  It leaves {} x ({} + {}) = {} values: in every layer a latent, which is key "
                    "and value in one, and a RoPE key.\n",
                    g.layers, g.v_channels(), g.k_channels(), Grouped(g.values_per_token()))
              : fmt::format(
                    "  It leaves 2 x {} x {} x {} = {} values: a key and a value in every "
                    "layer and KV head.\n",
                    g.layers, g.kv_heads, g.head_dim, Grouped(g.values_per_token()));
  Table table({"", "codes B", "metadata B", "padding B", "total B", "bits/value"});
  const auto add = [&](const char* name, const PageCost& c) {
    table.Add({name, Grouped(c.code_bytes_per_token), Grouped(c.metadata_bytes_per_token),
               Grouped(c.padding_bytes_per_token), Grouped(c.bytes_per_token),
               fmt::format("{:.2f}", c.effective_bits)});
  };
  add("f16", e.f16);
  add("kv", e.kv);
  text += table.Text();
  if (e.spec.layers.empty()) {
    text += SideGroups(e.spec.k, g.k_channels(), "K") + SideGroups(e.spec.v, g.v_channels(), "V");
  }
  text += fmt::format("  So the pages are {:.3f} times smaller than f16", e.ratio);
  const double codes_alone = e.f16.code_bytes_per_token / e.kv.code_bytes_per_token;
  text += codes_alone == e.ratio
              ? ".\n"
              : fmt::format(", not {:.3f} times: what is not codes counts too.\n", codes_alone);
  return text;
}

std::string ContextText(const KvExplanation& e) {
  std::string text = fmt::format("What {} cost{}\n", Plural(e.context_tokens * e.batch, "token"),
                                 e.context_tokens * e.batch == 1 ? "s" : "");
  Table table({"", "bytes", "size", "bits/value", "one step"});
  const auto bits = [](double value) { return fmt::format("{:.2f}", value); };
  const auto add = [&](const char* name, int64_t bytes, std::string bits_cell,
                       std::string pass_cell) {
    table.Add({name, Grouped(bytes), HumanBytes(static_cast<double>(bytes)), std::move(bits_cell),
               std::move(pass_cell)});
  };
  add("f16", e.f16.bytes, bits(e.f16.effective_bits), HumanTime(e.f16.stream_ms));
  add("kv, pages alone", e.kv.bytes, bits(e.kv.effective_bits), HumanTime(e.kv.stream_ms));
  add("+ window", e.window.added_bytes, "", "");
  add("+ sinks", e.sinks.added_bytes, "", "");
  add("kv, all held", e.ledger.kv_bytes, bits(e.ledger.effective_bits),
      HumanTime(e.ledger_stream_ms));
  text += table.Text();
  if (e.window.bytes + e.sinks.bytes > 0) {
    text += fmt::format(
        "  The newest {} of a sequence are read as written, until their page of {} has left the\n"
        "  window; the first {} are so for good. The window's line is what this takes beyond "
        "stored\n"
        "  pages, with one page more, to cut back to.\n",
        Plural(e.window.tokens, "token"), e.page_tokens, e.sinks.tokens);
  }
  return text;
}

std::string BoundText(const KvExplanation& e) {
  const Device& d = e.device;
  std::string text = "What limits a decode step\n";
  text +=
      fmt::format("  Every step reads {} once: {} of pages at {} take {}, f16 took {}.\n",
                  e.kv.read_bytes < e.kv.bytes ? "what its layers see" : "the whole cache",
                  HumanBytes(static_cast<double>(e.kv.read_bytes)), HumanRate(d.read_bytes_per_s),
                  HumanTime(e.kv.stream_ms), HumanTime(e.f16.stream_ms));
  text += fmt::format("  Its attention needs {:.3g} GFLOP, {:.2f} for each byte read",
                      e.flops / 1e9, e.flops_per_byte);
  if (d.matrix_flops_per_s > 0) {
    text += fmt::format(
        "; the device could do {:.0f}\n  in that time, so arithmetic alone would take {}.\n",
        d.matrix_flops_per_s / d.read_bytes_per_s, HumanTime(e.compute_ms));
  } else {
    text +=
        ".\n  How fast this machine calculates is not measured here; kvant bench attention shows "
        "what is left.\n";
  }
  if (d.multiprocessors > 0) {
    text += fmt::format(
        "  Unpacking is not free: {:.1f} instructions fit into the time of one byte. A kernel "
        "that\n"
        "  spends more is bound by instruction issue and gains nothing from fewer bits.\n",
        d.IssueBudgetPerByte());
  }
  if (!e.fits) {
    text +=
        fmt::format("  The cache does not fit: {} are held, the device has {}.\n",
                    HumanBytes(static_cast<double>(e.ledger.kv_bytes)), HumanBytes(d.memory_bytes));
  }
  text += fmt::format(
      "  The limit that holds is {}{}.\n", e.bound,
      e.bound == "memory bandwidth" ? ": fewer bytes are less time, in proportion" : "");
  return text;
}

// Short enough for a column, long enough to check by hand.
std::string Decimal(double value) { return fmt::format("{:.4f}", value == 0 ? 0.0 : value); }

std::string DerivationText(const GroupExample& e) {
  const int steps = (1 << e.format.bits) - 1;
  std::string text = fmt::format(
      "  min {:g} and max {:g} span {:g}, cut into {} steps: scale = {:g} / {} = {:.7f},\n"
      "  stored in f16 as {:.7f}.\n",
      e.min, e.max, e.max - e.min, steps, e.max - e.min, steps, e.exact_scale, e.scale);
  if (e.scale != 0) {
    text += fmt::format(
        "  zero = round(-min / scale) = round({:.4f}) = {:g}: the code that stands for 0.\n",
        -e.min / e.scale, e.zero);
  }
  return text + "  code = round(x / scale) + zero, and x comes back as scale x (code - zero).\n";
}

std::string ValuesTable(std::span<const float> values, const GroupExample& e) {
  Table table({"x", "x / scale", "code", "decoded", "error"});
  for (size_t i = 0; i < values.size(); ++i) {
    table.Add({fmt::format("{:g}", values[i]),
               e.scale == 0 ? "-" : fmt::format("{:.3f}", values[i] / e.scale),
               fmt::format("{}", e.codes[i]), Decimal(e.decoded[i]),
               fmt::format("{:+.4f}", e.errors[i])});
  }
  return table.Text();
}

std::string CodesText(const std::vector<int>& codes) {
  std::string text;
  for (int code : codes) text += fmt::format("{}{}", text.empty() ? "" : " ", code);
  return text;
}

}  // namespace

std::string CacheText(const KvExplanation& e) {
  return SetupText(e) + "\n" + TokenText(e) + "\n" + ContextText(e) + "\n" + BoundText(e);
}

std::string KiviText(const KiviResidual& r, const KvExplanation& e) {
  std::string text =
      "What KIVI's own bookkeeping would hold: arithmetic only, kvant stores pages\n";
  Table table({"", "tokens in f16", "bits/value"});
  const auto add = [&](const char* name, std::string tokens, double bits) {
    table.Add({name, std::move(tokens), fmt::format("{:.3f}", bits)});
  };
  add("KIVI, K", Grouped(r.k_tokens), r.k_bits);
  add("KIVI, V", Grouped(r.v_tokens), r.v_bits);
  add("KIVI, both", "", r.mean_bits);
  add("kvant, all held", Grouped(e.window.tokens), e.ledger.effective_bits);
  return text + table.Text() +
         fmt::format(
             "  KIVI codes {} tokens of K at once and V one token at a time. kvant codes both in\n"
             "  pages of {}: what a query reads then follows from positions alone, never from how\n"
             "  the tokens came, and one page table serves K and V.\n",
             kKiviResidualTokens, e.page_tokens);
}

std::string GroupText(std::span<const float> values, const std::vector<GroupExample>& group) {
  const GroupExample& e = group[0];
  std::string text =
      fmt::format("One group of {} in {} bits, {}\n", Plural(std::ssize(values), "value"),
                  e.format.bits, OffsetWord(e.format.offset));
  text += DerivationText(e) + ValuesTable(values, e);
  text += fmt::format("  The codes as bytes, the first code in the lowest bits: {}\n",
                      HexBytes(e.bytes));
  text += fmt::format("  The largest error is {:.4f}; half a step is {:.4f}.\n", e.max_error,
                      e.scale / 2);
  const int64_t metadata = e.format.metadata_bytes_per_group();
  text += fmt::format(
      "  {} bytes of codes and {} of metadata: {:.2f} bits a value in a group this short.\n",
      e.bytes.size(), metadata,
      8.0 * static_cast<double>(std::ssize(e.bytes) + metadata) /
          static_cast<double>(values.size()));
  text += "\nThe same values under other conventions\n";
  Table table({"convention", "scale", "zero or min", "codes", "max error", "mean square"});
  for (const GroupExample& g : group) {
    table.Add({std::string(OffsetWord(g.format.offset)), fmt::format("{:.7f}", g.scale),
               g.format.offset == Offset::kNone ? "-" : fmt::format("{:.6g}", g.zero),
               CodesText(g.codes), Decimal(g.max_error),
               fmt::format("{:.3e}", g.mean_squared_error)});
  }
  return text + table.Text() +
         "  Real offsets put min and max exactly on the grid; an integer zero keeps 0 exact "
         "instead.\n";
}

std::string_view OffsetWord(Offset offset) {
  switch (offset) {
    case Offset::kNone:
      return "symmetric";
    case Offset::kExtreme:
      return "signed extreme";
    case Offset::kMin:
      return "min offset";
    case Offset::kIntegerZero:
      return "integer zero";
    case Offset::kRealZero:
      return "real zero";
  }
  return "";
}

std::string HexBytes(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (uint8_t byte : bytes) text += fmt::format("{}{:02X}", text.empty() ? "" : " ", byte);
  return text;
}

}  // namespace kvant::cli
