// The parts of docs/results/graphpipe.md: each writes its pictures and returns its Markdown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stagewright::bench {

struct FigureSetting {
  std::string out;               // Folder of the page and the pictures.
  std::string graphs;            // Folder of the captured models.
  std::vector<int32_t> devices;  // Multiples of 4.
};

// Figures 6 and 8, table 1 and appendix A.3: graph pipelines beside sequential pipelines and data
// parallelism. Minutes: the default planner searches, too.
std::string Figures6And8(const FigureSetting& setting);

// Figure 7: the gain by branches of the model, and by micro-batch size.
std::string Figure7(const FigureSetting& setting);

// Figure 10: the case study at one memory size, and over many.
std::string Figure10(const FigureSetting& setting);

// Writes `svg` as `name`.svg.
void WritePicture(const FigureSetting& setting, const std::string& name, const std::string& svg);

}  // namespace stagewright::bench
