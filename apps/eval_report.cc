#include "eval_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "html.h"
#include "output.h"
#include "svg_plot.h"

namespace kvant::cli {
namespace {

constexpr double kWidestBits = 16.5;  // of what the plot of bits shows: f32 would squeeze the rest

const EvalTest& TestOf(const EvalResults& results, const EvalContext& c) {
  return results.tests[static_cast<size_t>(c.test)];
}

// The contexts of one length and mode, in the order of the tests.
using Group = std::vector<const EvalContext*>;
std::vector<Group> GroupsOf(const EvalResults& results) {
  std::vector<Group> groups;
  for (const EvalContext& c : results.contexts) {
    if (groups.empty() || groups.back()[0]->ctx_tokens != c.ctx_tokens ||
        groups.back()[0]->mode != c.mode) {
      groups.emplace_back();
    }
    groups.back().push_back(&c);
  }
  return groups;
}

std::string GroupName(const Group& group) {
  return fmt::format("Context {}, {}, {} tokens scored", Grouped(group[0]->ctx_tokens),
                     EvalModeName(group[0]->mode), Grouped(group[0]->tokens));
}

// Tests that no other beats in both bits and KL, fewest bits first.
Group FrontOf(Group group) {
  std::stable_sort(group.begin(), group.end(), [](const EvalContext* a, const EvalContext* b) {
    return std::tie(a->effective_bits, a->mean_kl) < std::tie(b->effective_bits, b->mean_kl);
  });
  Group front;
  for (const EvalContext* c : group) {
    if (front.empty() || c->mean_kl < front.back()->mean_kl) front.push_back(c);
  }
  return front;
}

std::string NamesOf(const EvalResults& results, const Group& group) {
  std::string names;
  for (const EvalContext* c : group) {
    names += (names.empty() ? "" : ", ") + TestOf(results, *c).name;
  }
  return names;
}

std::string ResultsTable(const EvalResults& results, const Group& group) {
  std::vector<std::vector<std::string>> rows;
  for (const EvalContext* c : group) {
    const EvalTest& test = TestOf(results, *c);
    rows.push_back(
        {test.name, SideText(test.spec, Side::kK), SideText(test.spec, Side::kV),
         fmt::format("{:.2f}", c->effective_bits), BytesText(test),
         fmt::format("{} ± {}", KlText(c->mean_kl), KlText(c->mean_kl_se)),
         c->floor ? KlText(c->floor->mean_kl) : "–", KlText(c->median_kl), KlText(c->p99_kl),
         KlText(c->p999_kl), fmt::format("{:.3f}", c->max_kl),
         fmt::format("{:.2f} %", 100 * c->same_top1), fmt::format("{:.5f}", c->ppl_ratio),
         test.ns_per_cached_token ? fmt::format("{:.1f}", *test.ns_per_cached_token) : "–"});
  }
  return HtmlTable({"preset", "K", "V", "bits", "B/token", "mean KL", "floor", "median", "99 %",
                    "99.9 %", "max", "same top-1", "ppl ratio", "ns/token"},
                   rows, 3);
}

// Mean KL over effective bits, with the front joined and named.
std::string BitsPlot(const EvalResults& results, const Group& group) {
  Group shown, wide, exact;
  std::vector<double> bits, losses;
  for (const EvalContext* c : group) {
    (c->mean_kl <= 0 ? exact : c->effective_bits > kWidestBits ? wide : shown).push_back(c);
    if (c != (shown.empty() ? nullptr : shown.back())) continue;
    bits.push_back(c->effective_bits);
    losses.push_back(c->mean_kl);
  }
  if (shown.empty()) return HtmlParagraph("No cache of few bits differs from the base.");
  const std::optional<EvalFloor>& floor = group[0]->floor;
  if (floor) losses.push_back(floor->mean_kl);
  SvgPlot plot({}, PlotAxis::Around("effective bits a cached value", bits, false),
               PlotAxis::Around("mean KL, nats", losses, true), "Mean KL against effective bits");
  if (floor && floor->mean_kl > 0) {
    plot.Level(floor->mean_kl, fmt::format("noise floor {}", KlText(floor->mean_kl)));
  }
  const Group front = FrontOf(shown);
  const auto on_front = [&](const EvalContext* c) {
    return std::find(front.begin(), front.end(), c) != front.end();
  };
  SvgPlot::Points line;
  for (const EvalContext* c : front) line.emplace_back(c->effective_bits, c->mean_kl);
  plot.Curve(line, 0);
  for (const EvalContext* c : shown) {
    plot.Dot(c->effective_bits, c->mean_kl, on_front(c) ? 0 : 1, on_front(c),
             fmt::format("{}: {:.2f} bits, KL {}", TestOf(results, *c).name, c->effective_bits,
                         KlText(c->mean_kl)));
  }
  for (const bool important : {true, false}) {
    for (const EvalContext* c : shown) {
      if (on_front(c) != important) continue;
      plot.Name(c->effective_bits, c->mean_kl, TestOf(results, *c).name, important);
    }
  }
  std::string text = "On the front (filled): " + NamesOf(results, front) + ".";
  if (!exact.empty()) text += " Exactly 0, so not shown: " + NamesOf(results, exact) + ".";
  if (!wide.empty()) text += " Wider than the plot: " + NamesOf(results, wide) + ".";
  return plot.Svg() + HtmlParagraph(text);
}

std::string PositionPlot(const EvalResults& results, const Group& group) {
  const auto middle = [](const EvalBucket& b) {
    return static_cast<double>(b.first_position + b.end_position - 1) / 2;
  };
  std::vector<double> positions, losses;
  size_t longest = 0;
  for (const EvalContext* c : group) {
    if (c->mean_kl <= 0) continue;
    longest = std::max(longest, TestOf(results, *c).name.size());
    for (const EvalBucket& b : c->by_position) {
      positions.push_back(middle(b));
      losses.push_back(b.mean_kl);
    }
  }
  if (positions.empty()) return "";
  const size_t curves = group.size();
  SvgPlot plot({.width = 900,
                .height = std::max(460.0, 90 + 15 * static_cast<double>(curves)),
                .right = 40 + 7 * static_cast<double>(longest)},
               PlotAxis::Around("position in the context, tokens", positions, false),
               PlotAxis::Around("mean KL, nats", losses, true), "Mean KL by position");
  std::vector<SvgPlot::EndName> names;
  int series = 0;
  for (const EvalContext* c : group) {
    if (c->mean_kl <= 0) continue;
    SvgPlot::Points points;
    for (const EvalBucket& b : c->by_position) {
      if (b.mean_kl > 0) points.emplace_back(middle(b), b.mean_kl);
    }
    if (points.empty()) continue;
    plot.Curve(points, series);
    for (const auto& [x, y] : points) plot.Dot(x, y, series, true, TestOf(results, *c).name);
    names.push_back(
        {points.back().first, points.back().second, TestOf(results, *c).name, series++});
  }
  plot.NameEnds(std::move(names));
  return plot.Svg();
}

// One small plot a layer: the largest magnitude of each channel of K, and its mean.
std::string KeySection(const KeyRanges& keys) {
  const KvGeometry& g = keys.geometry;
  std::string html = HtmlHeading(2, "Channels of K, layer by layer");
  html += HtmlParagraph(fmt::format(
      "Over {} tokens without the first ones, after the rotation by position. Area: the largest "
      "magnitude of each channel; curve: the magnitude of its mean. Channels of {} run from left "
      "to right. A curve close under its area is an offset, which a format must store or take "
      "off.",
      Grouped(keys.tokens), Plural(g.kv_heads, "KV head")));
  html += "<div class=\"small\">\n";
  const int channels = g.kv_heads * g.head_dim;
  for (int layer = 0; layer < g.layers; ++layer) {
    SvgPlot::Points most, mean;
    float top = 0;
    for (int c = 0; c < channels; ++c) {
      const size_t at = static_cast<size_t>(layer * channels + c);
      most.emplace_back(c, keys.max_abs[at]);
      mean.emplace_back(c, std::fabs(keys.mean[at]));
      top = std::max(top, keys.max_abs[at]);
    }
    SvgPlot plot({.width = 280, .height = 120, .right = 8, .compact = true},
                 {"channel", 0, std::max(1.0, channels - 1.0), false},
                 {"|k|", 0, top > 0 ? 1.05 * static_cast<double>(top) : 1.0, false},
                 fmt::format("Channels of K in layer {}", layer));
    plot.Area(most, 1);
    plot.Curve(mean, 0);
    html +=
        fmt::format("<div><h3>Layer {}, largest {:.1f}</h3>\n{}</div>\n", layer, top, plot.Svg());
  }
  return html + "</div>\n";
}

}  // namespace

std::string EvalReportHtml(const EvalReport& report) {
  const EvalResults& results = report.results;
  std::string body;
  std::vector<std::vector<std::string>> facts;
  for (const auto& [name, value] : report.facts) facts.push_back({name, value});
  body += HtmlTable({"", ""}, facts, 2);
  for (const Group& group : GroupsOf(results)) {
    body += HtmlHeading(2, GroupName(group));
    body += ResultsTable(results, group);
    body += HtmlHeading(3, "Loss against size") + BitsPlot(results, group);
    body += HtmlHeading(3, "Loss by position") + PositionPlot(results, group);
  }
  for (const auto& [preset, why] : results.skipped) {
    body += HtmlParagraph(fmt::format("Left out {}: {}", preset, why));
  }
  if (report.keys) body += KeySection(*report.keys);
  body += HtmlParagraph(
      "KL is that of the base's prediction to the tested cache's, in nats. The noise floor is what "
      "a cache without loss measures in the same run: differences below it mean nothing. Bits "
      "count all that a cache of this length holds: pages, scales, window and first tokens.");
  return HtmlPage(report.title, body);
}

}  // namespace kvant::cli
