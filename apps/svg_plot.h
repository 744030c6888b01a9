// A plot as SVG, drawn with the classes of html.cc: axes with ticks, curves, dots, and names that
// keep out of each other's way.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvant::cli {

struct PlotAxis {
  std::string label;
  double low = 0, high = 1;  // low < high; both positive where log
  bool log = false;

  // Holds all values with a little room around them; of a log axis only the positive ones.
  static PlotAxis Around(std::string label, const std::vector<double>& values, bool log);
};

struct PlotSize {
  double width = 900, height = 460;  // pixels
  double right = 24;                 // room for names beside the plot
  bool compact = false;              // a small one among many: no label, few ticks
};

class SvgPlot {
 public:
  using Points = std::vector<std::pair<double, double>>;

  // alt: what the plot shows, for those who cannot see it.
  SvgPlot(PlotSize size, PlotAxis x, PlotAxis y, std::string_view alt);

  // Values outside the axes are drawn at their edge.
  void Curve(const Points& points, int series);
  void Area(const Points& points, int series);  // between the points and the x axis
  void Dot(double x, double y, int series, bool filled, std::string_view tip);
  void Level(double y, std::string_view name);  // a dashed line from side to side

  // Names a dot where there is room next to it; without room an important one goes where it
  // overlaps least, any other is left out.
  void Name(double x, double y, std::string_view name, bool important);
  // Names curves at the right border, each as near to its last point as the others allow.
  struct EndName {
    double x, y;
    std::string name;
    int series;
  };
  void NameEnds(std::vector<EndName> names);

  std::string Svg() const;

 private:
  struct Box {
    double left, top, right, bottom;
  };

  double X(double value) const;
  double Y(double value) const;
  double right() const { return size_.width - size_.right; }
  double bottom() const { return size_.height - (size_.compact ? 18 : 46); }
  void DrawAxes();
  std::string PathOf(const Points& points) const;
  double Overlap(const Box& box) const;

  PlotSize size_;
  PlotAxis x_, y_;
  std::string alt_, body_;
  std::vector<Box> taken_;  // by dots and names
};

}  // namespace kvant::cli
