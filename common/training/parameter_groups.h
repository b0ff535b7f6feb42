// Parameters that are trained with constants of their own, chosen by name.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"

namespace stagewright {

struct ParameterGroup {
  std::string pattern;  // A glob as in fnmatch(3) over names of parameters; "*" also crosses dots.
  double weight_decay = 0;         // Instead of the optimizer's.
  double learning_rate_scale = 1;  // Multiplies the learning rate; 0 freezes.

  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

// The first of `groups` that matches the parameter's name or an alias; -1 if none does.
int GroupOf(const std::vector<ParameterGroup>& groups, const Parameter& parameter);

// GroupOf each parameter of the graph.
std::vector<int> GroupsOf(const std::vector<ParameterGroup>& groups, const Graph& graph);

// INVALID_ARGUMENT names the field of a group whose pattern matches no trainable parameter, or
// whose numbers are negative or not finite. `of` goes before the field.
absl::Status Check(const std::vector<ParameterGroup>& groups, const Graph& graph,
                   absl::string_view of = "");

}  // namespace stagewright
