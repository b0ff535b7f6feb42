#include "clients/cli/view/stage_dag.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagewright::cli {
namespace {

// The depth at which each stage starts: 1 + the longest path to it.
std::vector<int32_t> Levels(const v1::Strategy& strategy) {
  std::vector<int32_t> level(strategy.stages_size(), 1);
  for (const v1::StageEdge& edge :
       strategy.edges()) {  // Stages are in topological order and edges are sorted.
    level[edge.to()] = std::max(level[edge.to()], level[edge.from()] + 1);
  }
  return level;
}

}  // namespace

std::vector<std::vector<int32_t>> Successors(const v1::Strategy& strategy) {
  std::vector<std::vector<int32_t>> successors(strategy.stages_size());
  for (const v1::StageEdge& edge : strategy.edges()) successors[edge.from()].push_back(edge.to());
  return successors;
}

bool HasBranches(const v1::Strategy& strategy) {
  const std::vector<int32_t> levels = Levels(strategy);
  const auto deepest = std::max_element(levels.begin(), levels.end());
  return deepest != levels.end() && *deepest < strategy.stages_size();
}

std::string DagText(const v1::Strategy& strategy) {
  const std::vector<int32_t> levels = Levels(strategy);
  const auto successors = Successors(strategy);
  std::string out;
  const int32_t depth = levels.empty() ? 0 : *std::max_element(levels.begin(), levels.end());
  for (int32_t level = 1; level <= depth; ++level) {
    std::vector<std::string> cells;
    for (int32_t s = 0; s < strategy.stages_size(); ++s) {
      if (levels[s] != level) continue;
      std::string cell = absl::StrCat("[", s, "]");
      if (!successors[s].empty()) absl::StrAppend(&cell, " -> ", absl::StrJoin(successors[s], ","));
      cells.push_back(std::move(cell));
    }
    absl::StrAppend(&out, "  ",
                    level == 1       ? "in  "
                    : level == depth ? "out "
                                     : "    ",
                    absl::StrJoin(cells, "   "), "\n");
  }
  return out;
}

}  // namespace stagewright::cli
