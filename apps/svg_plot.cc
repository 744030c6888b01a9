#include "svg_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "html.h"

namespace kvant::cli {
namespace {

constexpr double kLeft = 78, kCompactLeft = 34, kTop = 16;
constexpr double kLetterWidth = 6.9, kLineHeight = 14;  // of the names' font, about
constexpr int kSeriesColours = 8;

double TextWidth(std::string_view text) {
  return kLetterWidth * static_cast<double>(std::count_if(
                            text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string TickText(double value) {
  if (value != 0 && (std::fabs(value) < 1e-4 || std::fabs(value) >= 1e6)) {
    return fmt::format("{:.0e}", value);
  }
  return fmt::format("{:.6g}", value);
}

std::vector<double> LogTicks(double low, double high) {
  std::vector<double> ticks;
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const bool dense = std::log10(high / low) < 3;
  for (int power = first; std::pow(10.0, power) <= high; ++power) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double tick = step * std::pow(10.0, power);
      if (tick >= low && tick <= high && (dense || step == 1.0)) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::vector<double> LinearTicks(double low, double high, int about) {
  const double raw = (high - low) / about, power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (step < raw) step = factor * power;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step); i * step <= high; i += 1) ticks.push_back(i * step);
  return ticks;
}

}  // namespace

PlotAxis PlotAxis::Around(std::string label, const std::vector<double>& values, bool log) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const double value : values) {
    if (log && value <= 0) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) low = high = 1;
  if (log) return {std::move(label), low / 1.6, high * 1.6, true};
  const double room = high > low ? 0.06 * (high - low) : std::max(1.0, std::fabs(high)) * 0.5;
  return {std::move(label), low - room, high + room, false};
}

SvgPlot::SvgPlot(PlotSize size, PlotAxis x, PlotAxis y, std::string_view alt)
    : size_(size), x_(std::move(x)), y_(std::move(y)), alt_(alt) {
  DrawAxes();
}

double SvgPlot::X(double value) const {
  const double left = size_.compact ? kCompactLeft : kLeft;
  const double at = std::clamp(value, x_.low, x_.high);
  const double part = x_.log ? std::log(at / x_.low) / std::log(x_.high / x_.low)
                             : (at - x_.low) / (x_.high - x_.low);
  return left + part * (right() - left);
}

double SvgPlot::Y(double value) const {
  const double at = std::clamp(value, y_.low, y_.high);
  const double part = y_.log ? std::log(at / y_.low) / std::log(y_.high / y_.low)
                             : (at - y_.low) / (y_.high - y_.low);
  return bottom() - part * (bottom() - kTop);
}

void SvgPlot::DrawAxes() {
  const double left = X(x_.low);
  const auto ticks = [&](const PlotAxis& axis, int about) {
    return axis.log ? LogTicks(axis.low, axis.high) : LinearTicks(axis.low, axis.high, about);
  };
  for (const double tick : ticks(x_, size_.compact ? 4 : 9)) {
    if (!size_.compact) {
      body_ += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", X(tick), kTop,
                           bottom());
    }
    body_ += fmt::format(
        "<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        X(tick), bottom() + 15, TickText(tick));
  }
  for (const double tick : ticks(y_, size_.compact ? 2 : 6)) {
    body_ +=
        fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", left, Y(tick), right());
    body_ += fmt::format(
        "<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left - 6,
        Y(tick) + 4, TickText(tick));
  }
  if (size_.compact) return;
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                       (left + right()) / 2, size_.height - 10, EscapeHtml(x_.label));
  body_ += fmt::format(
      "<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (kTop + bottom()) / 2, EscapeHtml(y_.label));
}

std::string SvgPlot::PathOf(const Points& points) const {
  std::string path;
  for (const auto& [x, y] : points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", X(x), Y(y));
  }
  return path;
}

void SvgPlot::Curve(const Points& points, int series) {
  body_ += fmt::format("<path class=\"curve s{}\" d=\"{}\"/>\n", series % kSeriesColours,
                       PathOf(points));
}

void SvgPlot::Area(const Points& points, int series) {
  if (points.empty()) return;
  body_ += fmt::format("<path class=\"area s{}\" d=\"{}V{:.1f}H{:.1f}Z\"/>\n",
                       series % kSeriesColours, PathOf(points), bottom(), X(points[0].first));
}

void SvgPlot::Dot(double x, double y, int series, bool filled, std::string_view tip) {
  constexpr double kRadius = 5;
  body_ += fmt::format(
      "<circle class=\"{} s{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}</title></circle>\n",
      filled ? "dot" : "ring", series % kSeriesColours, X(x), Y(y), kRadius, EscapeHtml(tip));
  taken_.push_back({X(x) - kRadius, Y(y) - kRadius, X(x) + kRadius, Y(y) + kRadius});
}

void SvgPlot::Level(double y, std::string_view name) {
  const double left = X(x_.low);
  body_ +=
      fmt::format("<path class=\"floor\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", left, Y(y), right());
  body_ += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", left + 6,
                       Y(y) - 5, EscapeHtml(name));
  taken_.push_back({left, Y(y) - 5 - kLineHeight, left + 6 + TextWidth(name), Y(y)});
}

double SvgPlot::Overlap(const Box& box) const {
  double area = 0;
  for (const Box& other : taken_) {
    const double width = std::min(box.right, other.right) - std::max(box.left, other.left);
    const double height = std::min(box.bottom, other.bottom) - std::max(box.top, other.top);
    if (width > 0 && height > 0) area += width * height;
  }
  const bool outside =
      box.left < X(x_.low) || box.right > size_.width - 2 || box.top < 2 || box.bottom > bottom();
  return outside ? area + 1e6 : area;
}

void SvgPlot::Name(double x, double y, std::string_view name, bool important) {
  constexpr double kGap = 8;
  const double width = TextWidth(name), cx = X(x), cy = Y(y);
  const auto box_at = [&](double left, double middle) {
    return Box{left, middle - kLineHeight / 2, left + width, middle + kLineHeight / 2};
  };
  Box best{};
  double least = HUGE_VAL;
  for (const double away : {1.0, 1.7, 2.6, 3.6}) {
    const double dy = (kLineHeight / 2 + kGap) * away - 2;
    for (const Box& box :
         {box_at(cx + kGap * away, cy), box_at(cx + kGap, cy - dy), box_at(cx + kGap, cy + dy),
          box_at(cx - width - kGap * away, cy), box_at(cx - width / 2, cy - dy),
          box_at(cx - width / 2, cy + dy), box_at(cx - width - kGap, cy - dy),
          box_at(cx - width - kGap, cy + dy)}) {
      const double overlap = Overlap(box);
      if (overlap < least) {
        least = overlap;
        best = box;
      }
    }
    if (least == 0) break;
  }
  if (least > 0 && !important) return;
  taken_.push_back(best);
  body_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                       important ? "title" : "soft", best.left, best.bottom - 3, EscapeHtml(name));
}

void SvgPlot::NameEnds(std::vector<EndName> names) {
  std::stable_sort(names.begin(), names.end(),
                   [](const EndName& a, const EndName& b) { return a.y > b.y; });
  std::vector<double> at;  // from the top down; first pushed down, then up from the border
  for (const EndName& name : names) {
    at.push_back(at.empty() ? Y(name.y) : std::max(Y(name.y), at.back() + kLineHeight));
  }
  double limit = bottom();
  for (size_t i = at.size(); i-- > 0; limit = at[i] - kLineHeight) at[i] = std::min(at[i], limit);
  for (size_t i = 0; i < names.size(); ++i) {
    body_ += fmt::format("<path class=\"lead\" d=\"M{:.1f} {:.1f}H{:.1f}L{:.1f} {:.1f}\"/>\n",
                         X(names[i].x) + 5, Y(names[i].y), right(), right() + 16, at[i]);
    body_ += fmt::format(
        "<text class=\"s{}\" style=\"fill:var(--c)\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        names[i].series % kSeriesColours, right() + 20, at[i] + 4, EscapeHtml(names[i].name));
  }
}

std::string SvgPlot::Svg() const {
  return fmt::format(
             "<svg viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" role=\"img\" "
             "aria-label=\"{}\">\n",
             size_.width, size_.height, size_.width, size_.height, EscapeHtml(alt_)) +
         body_ + "</svg>\n";
}

}  // namespace kvant::cli
