#include "tasks_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <vector>

#include "html.h"
#include "output.h"
#include "svg_plot.h"

namespace kvant::cli {
namespace {

// One field of a grid.
struct Field {
  int64_t length_tokens = 0;
  int depth_percent = 0;
  double score = 0;
  bool base_passes = true;
};

// Lengths from left to right, depths from top to bottom. A field where the base fails is grey.
std::string GridSvg(const std::vector<Field>& fields, const std::string& name) {
  constexpr double kLeft = 58, kTop = 28, kWidth = 66, kHeight = 28;
  std::set<int64_t> lengths, depths;
  for (const Field& field : fields) {
    lengths.insert(field.length_tokens);
    depths.insert(field.depth_percent);
  }
  const auto x = [&](int64_t length) {
    return kLeft +
           kWidth * static_cast<double>(std::distance(lengths.begin(), lengths.find(length)));
  };
  const auto y = [&](int64_t depth) {
    return kTop + kHeight * static_cast<double>(std::distance(depths.begin(), depths.find(depth)));
  };
  const double width = kLeft + kWidth * static_cast<double>(lengths.size()) + 8;
  const double height = kTop + kHeight * static_cast<double>(depths.size()) + 8;
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" "
      "aria-label=\"{2}: score by length and depth\">\n",
      width, height, EscapeHtml(name));
  const auto label = [&](double at_x, double at_y, const char* anchor, const std::string& text) {
    svg +=
        fmt::format("<text class=\"soft\" x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"{}\">{}</text>\n",
                    at_x, at_y, anchor, text);
  };
  for (const int64_t length : lengths) {
    label(x(length) + kWidth / 2, kTop - 9, "middle", Grouped(length));
  }
  for (const int64_t depth : depths) {
    label(kLeft - 8, y(depth) + kHeight / 2 + 4, "end", fmt::format("{} %", depth));
  }
  for (const Field& f : fields) {
    const double left = x(f.length_tokens), top = y(f.depth_percent);
    svg += fmt::format(
        "<rect class=\"cell{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" "
        "rx=\"3\" style=\"--part:{:.0f}%\"/>\n",
        f.base_passes ? "" : " void", left + 1, top + 1, kWidth - 2, kHeight - 2, 100 * f.score);
    svg += fmt::format("<text{} x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{:.0f} %</text>\n",
                       f.base_passes ? "" : " class=\"soft\"", left + kWidth / 2,
                       top + kHeight / 2 + 4, 100 * f.score);
  }
  return svg + "</svg>\n";
}

std::string Named(const std::string& name, const std::string& svg) {
  return "<div>" + HtmlHeading(3, name) + svg + "</div>\n";
}

// The grids of one task: the base's, then one a cache.
std::string GridsOf(const TaskResults& results, TaskKind kind) {
  std::string html;
  for (size_t test = 0; test < results.list.caches.size(); ++test) {
    std::vector<Field> fields, base;
    for (const TaskCell& c : results.scores.cells) {
      if (c.kind != kind || static_cast<size_t>(c.test) != test) continue;
      fields.push_back({c.length_tokens, c.depth_percent, c.score, BasePasses(c)});
      base.push_back({c.length_tokens, c.depth_percent, c.base_score, BasePasses(c)});
    }
    if (fields.empty()) return "";
    const std::string of_base = results.base_name + ", the base";
    if (test == 0) html += Named(of_base, GridSvg(base, of_base));
    const std::string& name = results.list.caches[test].name;
    html += Named(name, GridSvg(fields, name));
  }
  return "<div class=\"small\">\n" + html + "</div>\n";
}

std::string GridSection(const TaskResults& results) {
  std::string html;
  for (const TaskKind kind : kTaskKinds) {
    if (kind == TaskKind::kSums) continue;  // has no depth
    const std::string grids = GridsOf(results, kind);
    if (!grids.empty()) html += HtmlHeading(2, TaskKindName(kind)) + grids;
  }
  return html;
}

// The share of answers that are still the base's after so many tokens.
SvgPlot::Points Survival(const GreedyAgreement& agreement) {
  SvgPlot::Points points;
  const std::vector<int64_t>& first = agreement.first_divergence;
  for (int64_t tokens = 0; tokens <= agreement.tokens; ++tokens) {
    const auto equal =
        std::count_if(first.begin(), first.end(), [&](int64_t at) { return at >= tokens; });
    points.emplace_back(static_cast<double>(tokens),
                        static_cast<double>(equal) / static_cast<double>(first.size()));
  }
  return points;
}

std::string GreedySection(const TaskResults& results) {
  const double tokens = static_cast<double>(results.greedy[0].tokens);
  size_t longest = 0;
  for (const NamedSpec& cache : results.list.caches) longest = std::max(longest, cache.name.size());
  const double curves = static_cast<double>(results.greedy.size());
  SvgPlot plot({.width = 900,
                .height = std::max(460.0, 90 + 15 * curves),
                .right = 40 + 7 * static_cast<double>(longest)},
               {"tokens of the answer", 0, tokens, false},
               {"share of answers equal so far", 0, 1, false},
               "How long greedy answers stay equal");
  std::vector<SvgPlot::EndName> names;
  for (size_t i = 0; i < results.greedy.size(); ++i) {
    const SvgPlot::Points points = Survival(results.greedy[i]);
    plot.Curve(points, static_cast<int>(i));
    names.push_back(
        {tokens, points.back().second, results.list.caches[i].name, static_cast<int>(i)});
  }
  plot.NameEnds(std::move(names));
  return HtmlHeading(2, "Greedy answers") + plot.Svg();
}

std::string TableOf(const TextRows& rows, size_t text_columns) {
  return rows.size() == 1 ? "" : HtmlTable(rows[0], {rows.begin() + 1, rows.end()}, text_columns);
}

}  // namespace

std::string TasksReportHtml(const std::string& model_name, const Json& header,
                            const TaskResults& results) {
  std::vector<std::vector<std::string>> facts;
  for (const auto& [name, value] : header.items()) {
    facts.push_back({name, value.is_string() ? value.get<std::string>() : value.dump()});
  }
  facts.push_back({"base", LayerFormatsText(results.base, results.geometry.layers)});
  facts.push_back({"seed", std::to_string(results.seed)});
  facts.push_back({"needles, digits, terms, fields",
                   fmt::format("{}, {}, {}, {}", results.sizes.needles, results.sizes.digits,
                               results.sizes.terms, results.sizes.fields)});
  std::string body = HtmlTable({"", ""}, facts, 2);
  if (!results.scores.cells.empty()) {
    body += HtmlParagraph(fmt::format(
        "Score: the share of the expected numbers or items in the greedy answer. Fields and rows "
        "where the base scores less than {:.0f} % say nothing of a cache; their fields are grey. "
        "Kept: of the questions that the base answers in full, those that the cache does too.",
        100 * kPassingScore));
    body += TableOf(TaskMatrix(results), 1) + GridSection(results);
    body += HtmlHeading(2, "All depths together") + TableOf(TaskRows(results), 2);
  }
  if (!results.greedy.empty()) body += GreedySection(results) + TableOf(GreedyRows(results), 1);
  for (const std::string& line : LeftOutText(results)) body += HtmlParagraph(line);
  return HtmlPage("KV cache formats in tasks" + (model_name.empty() ? "" : ", " + model_name),
                  body);
}

}  // namespace kvant::cli
