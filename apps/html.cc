#include "html.h"

namespace kvant::cli {
namespace {

// Colours by role, for light and dark. .s0 .. .s7 are series, in an order that colour-blind readers
// can tell apart; every series also has its name beside it.
constexpr char kStyle[] = R"(
:root { color-scheme: light dark; --ink: #1c2126; --soft: #5b6570; --line: #d5dae0; --page: #ffffff;
  --panel: #f6f8fa; --c0: #0063b2; --c1: #b24700; --c2: #00755e; --c3: #a0307a; --c4: #6b5b00;
  --c5: #4b4fc4; --c6: #b3202c; --c7: #47606e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #a3adb8; --line: #3a424b;
  --page: #14181c; --panel: #1b2025; --c0: #5cb3ff; --c1: #ff9a57; --c2: #45cfae; --c3: #f08ccf;
  --c4: #d8c34a; --c5: #a7a9ff; --c6: #ff8088; --c7: #a9c0cd; } }
body { margin: 0 auto; max-width: 88rem; padding: 1.5rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.25rem; margin: 2.4rem 0 .4rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; } p { max-width: 48rem; margin: .3rem 0 .8rem; }
.soft { color: var(--soft); } .scroll { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .45rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th { font-weight: 600; color: var(--soft); } .text { text-align: left; }
svg { display: block; max-width: 100%; height: auto; background: var(--panel);
  border-radius: 6px; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .soft { fill: var(--soft); } svg .title { font-weight: 600; paint-order: stroke; stroke: var(--panel); stroke-width: 3px; }
.grid { stroke: var(--line); stroke-width: 1; fill: none; }
.floor { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 5 4; fill: none; }
.lead { stroke: var(--soft); stroke-width: .6; fill: none; }
.s0 { --c: var(--c0); } .s1 { --c: var(--c1); } .s2 { --c: var(--c2); } .s3 { --c: var(--c3); }
.s4 { --c: var(--c4); } .s5 { --c: var(--c5); } .s6 { --c: var(--c6); } .s7 { --c: var(--c7); }
.curve { stroke: var(--c); stroke-width: 1.8; fill: none; }
.dot { fill: var(--c); } .ring { stroke: var(--c); stroke-width: 1.6; fill: var(--panel); }
.cell { fill: color-mix(in srgb, var(--c2) var(--part), var(--c6)); fill-opacity: .45; }
.cell.void { fill: var(--line); fill-opacity: .5; }
.area { fill: var(--c); fill-opacity: .35; stroke: none; }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: .8rem; }
)";

std::string Row(const char* tag, const std::vector<std::string>& cells, size_t text_columns) {
  std::string html = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    html += std::string("<") + tag + (i < text_columns ? " class=\"text\">" : ">") +
            EscapeHtml(cells[i]) + "</" + tag + ">";
  }
  return html + "</tr>\n";
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return html;
}

std::string HtmlPage(std::string_view title, std::string_view body) {
  std::string html = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  html += "<title>" + EscapeHtml(title) + "</title>\n<style>" + kStyle + "</style>\n</head>\n";
  html += "<body>\n<h1>" + EscapeHtml(title) + "</h1>\n";
  html += body;
  return html + "</body>\n</html>\n";
}

std::string HtmlHeading(int level, std::string_view text) {
  const std::string tag = "h" + std::to_string(level);
  return "<" + tag + ">" + EscapeHtml(text) + "</" + tag + ">\n";
}

std::string HtmlParagraph(std::string_view text) {
  return "<p class=\"soft\">" + EscapeHtml(text) + "</p>\n";
}

std::string HtmlTable(const std::vector<std::string>& head,
                      const std::vector<std::vector<std::string>>& rows, size_t text_columns) {
  std::string html = "<div class=\"scroll\"><table>\n" + Row("th", head, text_columns);
  for (const std::vector<std::string>& row : rows) html += Row("td", row, text_columns);
  return html + "</table></div>\n";
}

}  // namespace kvant::cli
