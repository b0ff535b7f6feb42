#include "clients/cli/view/stage_names.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagewright::cli {
namespace {

std::string Device(const PlanContext& context, int32_t index) {
  const auto known = static_cast<int32_t>(context.device_names.size());
  return index < known ? context.device_names[index] : absl::StrCat("device ", index);
}

// Names in a row that differ in one number only, counted up, are written once: "gpu[0-3]". The
// number is the one that ends before `suffix_of` the name.
std::vector<std::string> JoinRuns(const std::vector<std::string>& names,
                                  size_t (*suffix_of)(const std::string&)) {
  struct Parts {
    std::string stem, suffix;
    int64_t number = -1;
  };
  const auto split = [&](const std::string& name) {
    const size_t end = suffix_of(name);
    Parts parts;
    size_t digits = end;
    while (digits > 0 && absl::ascii_isdigit(name[digits - 1])) --digits;
    if (!absl::SimpleAtoi(name.substr(digits, end - digits), &parts.number)) parts.number = -1;
    parts.stem = name.substr(0, digits);
    parts.suffix = name.substr(end);
    return parts;
  };
  std::vector<std::string> joined;
  for (size_t begin = 0, end = 0; begin < names.size(); begin = end) {
    const Parts first = split(names[begin]);
    int64_t last = first.number;
    for (end = begin + 1; end < names.size() && first.number >= 0; ++end, ++last) {
      const Parts next = split(names[end]);
      if (next.stem != first.stem || next.suffix != first.suffix || next.number != last + 1) break;
    }
    joined.push_back(last == first.number ? names[begin]
                                          : absl::StrCat(first.stem, "[", first.number, "-", last,
                                                         "]", first.suffix));
  }
  return joined;
}

// The modules of the stage's nodes, each once, split where another stage has the next node.
std::vector<std::vector<std::string>> ModuleRuns(const v1::Stage& stage, const PlanContext& context,
                                                 const std::vector<int32_t>& ranks) {
  std::vector<int32_t> nodes;
  for (int32_t node : stage.nodes()) {
    if (node < static_cast<int32_t>(ranks.size())) nodes.push_back(node);
  }
  std::sort(nodes.begin(), nodes.end());
  std::vector<std::vector<std::string>> runs;
  std::set<std::string> seen;
  bool open = false;
  for (size_t i = 0; i < nodes.size(); ++i) {
    open = open && ranks[nodes[i]] == ranks[nodes[i - 1]] + 1;
    const std::string& module = context.node_modules[nodes[i]];
    if (module.empty() || !seen.insert(module).second) continue;
    if (!open) runs.emplace_back();
    open = true;
    runs.back().push_back(module);
  }
  return runs;
}

}  // namespace

std::vector<std::string> Nodes(const v1::Stage& stage, const PlanContext& context) {
  std::vector<std::string> names;
  for (int32_t node : stage.nodes()) {
    if (node < static_cast<int32_t>(context.node_names.size()))
      names.push_back(context.node_names[node]);
  }
  return names;
}

std::vector<std::string> Modules(const v1::Stage& stage, const PlanContext& context) {
  std::vector<std::string> modules;
  std::set<std::string> seen;
  for (int32_t node : stage.nodes()) {
    if (node >= static_cast<int32_t>(context.node_modules.size())) continue;
    const std::string& module = context.node_modules[node];
    if (!module.empty() && seen.insert(module).second) modules.push_back(module);
  }
  return modules;
}

std::vector<std::string> Devices(const v1::Stage& stage, const PlanContext& context) {
  std::vector<std::string> names;
  for (int32_t device : stage.devices()) names.push_back(Device(context, device));
  return names;
}

std::string DevicesText(const v1::Stage& stage, const PlanContext& context) {
  std::set<int32_t> sorted(stage.devices().begin(), stage.devices().end());
  std::vector<std::string> names;
  for (int32_t device : sorted) names.push_back(Device(context, device));
  names = JoinRuns(
      names, +[](const std::string& name) { return name.size(); });
  names = JoinRuns(
      names, +[](const std::string& name) { return std::min(name.find('/'), name.size()); });
  return absl::StrJoin(names, " ");
}

std::vector<int32_t> NodeRanks(const v1::Strategy& strategy, const PlanContext& context) {
  std::vector<int32_t> ranks(context.node_modules.size(), -1);
  for (const v1::Stage& stage : strategy.stages()) {
    for (int32_t node : stage.nodes()) {
      if (node < static_cast<int32_t>(ranks.size())) ranks[node] = 0;
    }
  }
  int32_t next = 0;
  for (int32_t& rank : ranks) {
    if (rank == 0) rank = next++;
  }
  return ranks;
}

std::string ModuleText(const v1::Stage& stage, const PlanContext& context,
                       const std::vector<int32_t>& ranks) {
  constexpr size_t kWidth = 48;
  std::vector<std::string> parts;
  std::vector<size_t> held;  // Modules in each part.
  for (const std::vector<std::string>& run : ModuleRuns(stage, context, ranks)) {
    if (run.size() > 2) {
      parts.push_back(absl::StrCat(run.front(), " .. ", run.back()));
      held.push_back(run.size());
    } else {
      parts.insert(parts.end(), run.begin(), run.end());
      held.resize(parts.size(), 1);
    }
  }
  if (parts.empty()) return absl::StrCat(stage.nodes_size(), " nodes");
  std::string text = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    if (i == 3 || text.size() + parts[i].size() > kWidth) {
      const size_t left =
          std::accumulate(held.begin() + static_cast<ptrdiff_t>(i), held.end(), size_t{0});
      return absl::StrCat(text, " (+", left, ")");
    }
    absl::StrAppend(&text, ", ", parts[i]);
  }
  return text;
}

}  // namespace stagewright::cli
