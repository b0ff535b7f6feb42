// Small charts as SVG text, for the programs that write docs/results. Deterministic.
#pragma once

#include <string>
#include <vector>

namespace stagewright::bench {

struct Series {
  std::string name;
  std::vector<double> values;  // One for each label; NaN: none.
};

struct Panel {
  std::string title;
  std::string axis;  // What the values are.
  std::vector<std::string> labels;
  std::vector<Series> series;
  bool bars = false;  // Groups of bars; else lines.
  double line = 0;    // A dashed horizontal line at this value; 0: none.
};

// The panels side by side, values from 0, with one legend. Colours go by the series' index.
std::string Chart(const std::vector<Panel>& panels);

}  // namespace stagewright::bench
