#include "tests/bench/chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace stagewright::bench {
namespace {

constexpr double kWidth = 290;
constexpr double kHeight = 190;
constexpr double kLeft = 58;
constexpr double kTop = 34;
const char* const kColours[] = {"#8c8c8c", "#4878a8", "#d9822b", "#5a9c5a", "#9467bd"};

// A round number at least as large, of which quarters are round too.
double RoundUp(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (double step : {1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0}) {
    if (value <= step * power) return step * power;
  }
  return 10 * power;
}

std::string Text(double x, double y, const std::string& text, const char* more) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, more, text);
}

std::string Number(double value) {
  return value >= 10000 ? absl::StrFormat("%.4gk", value / 1000) : absl::StrFormat("%.4g", value);
}

class Drawing {
 public:
  Drawing(const Panel& panel, double left) : panel_(panel), left_(left + kLeft) {
    double most = panel.line;
    for (const Series& series : panel.series) {
      for (double value : series.values) {
        if (!std::isnan(value)) most = std::max(most, value);
      }
    }
    most_ = RoundUp(std::max(most * 1.02, 1e-9));
  }

  std::string Draw() {
    std::string svg = Axes();
    for (size_t s = 0; s < panel_.series.size(); ++s) svg += panel_.bars ? Bars(s) : Line(s);
    return svg;
  }

 private:
  double X(double position) const {
    return left_ + (position + 0.5) * kWidth / static_cast<double>(panel_.labels.size());
  }
  double Y(double value) const { return kTop + kHeight * (1 - value / most_); }

  std::string Axes() const {
    std::string svg =
        Text(left_ + kWidth / 2, 18, panel_.title, "text-anchor=\"middle\" font-weight=\"bold\"");
    for (int tick = 0; tick <= 4; ++tick) {
      const double value = most_ * tick / 4;
      absl::StrAppendFormat(&svg,
                            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                            "stroke=\"#ddd\"/>\n",
                            left_, Y(value), left_ + kWidth, Y(value));
      svg += Text(left_ - 6, Y(value) + 4, Number(value), "text-anchor=\"end\"");
    }
    if (panel_.line > 0) {
      absl::StrAppendFormat(&svg,
                            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                            "stroke=\"#333\" stroke-dasharray=\"4 3\"/>\n",
                            left_, Y(panel_.line), left_ + kWidth, Y(panel_.line));
    }
    for (size_t i = 0; i < panel_.labels.size(); ++i) {
      svg += Text(X(static_cast<double>(i)), kTop + kHeight + 16, panel_.labels[i],
                  "text-anchor=\"middle\"");
    }
    svg += Text(left_ + kWidth / 2, kTop + kHeight + 34, panel_.axis, "text-anchor=\"middle\"");
    return svg;
  }

  std::string Bars(size_t s) const {
    std::string svg;
    const double group = kWidth / static_cast<double>(panel_.labels.size());
    const double width = 0.76 * group / static_cast<double>(panel_.series.size());
    for (size_t i = 0; i < panel_.labels.size(); ++i) {
      const double value = panel_.series[s].values[i];
      if (std::isnan(value)) continue;
      const double x = X(static_cast<double>(i)) - 0.38 * group + static_cast<double>(s) * width;
      absl::StrAppendFormat(
          &svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x,
          Y(value), width - 1, kTop + kHeight - Y(value), kColours[s % 5]);
      svg += Text(x + width / 2, Y(value) - 3, absl::StrFormat("%.2f", value),
                  "text-anchor=\"middle\" font-size=\"9\"");
    }
    return svg;
  }

  std::string Line(size_t s) const {
    std::string points;
    std::string marks;
    for (size_t i = 0; i < panel_.labels.size(); ++i) {
      const double value = panel_.series[s].values[i];
      if (std::isnan(value)) continue;
      const double x = X(static_cast<double>(i));
      absl::StrAppendFormat(&points, "%.1f,%.1f ", x, Y(value));
      absl::StrAppendFormat(&marks, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x,
                            Y(value), kColours[s % 5]);
    }
    return absl::StrFormat(
               "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", points,
               kColours[s % 5]) +
           marks;
  }

  const Panel& panel_;
  double left_;
  double most_;
};

}  // namespace

std::string Chart(const std::vector<Panel>& panels) {
  const double panel_width = kLeft + kWidth + 16;
  std::string body;
  for (size_t p = 0; p < panels.size(); ++p) {
    body += Drawing(panels[p], static_cast<double>(p) * panel_width).Draw();
  }
  const double bottom = kTop + kHeight + 56;
  double x = kLeft;
  for (size_t s = 0; s < panels[0].series.size(); ++s) {
    absl::StrAppendFormat(&body,
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n",
                          x, bottom - 10, kColours[s % 5]);
    body += Text(x + 18, bottom, panels[0].series[s].name, "");
    x += 40 + 7.0 * static_cast<double>(panels[0].series[s].name.size());
  }
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"white\"/>\n%s</svg>\n",
      static_cast<double>(panels.size()) * panel_width, bottom + 12, body);
}

}  // namespace stagewright::bench
