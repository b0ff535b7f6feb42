#include "common/training/parameter_groups.h"

#include <fnmatch.h>

#include <algorithm>

#include "common/training/field_check.h"

namespace stagewright {
namespace {

bool Matches(const ParameterGroup& group, const Parameter& own) {
  const Parameter parameter = StoredTensor(own);  // Users know nothing of slices.
  const auto matches = [&](const std::string& name) {
    return fnmatch(group.pattern.c_str(), name.c_str(), 0) == 0;
  };
  return matches(parameter.name) ||
         std::any_of(parameter.aliases.begin(), parameter.aliases.end(), matches);
}

}  // namespace

int GroupOf(const std::vector<ParameterGroup>& groups, const Parameter& parameter) {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& group) {
    return Matches(group, parameter);
  });
  return found == groups.end() ? -1 : static_cast<int>(found - groups.begin());
}

std::vector<int> GroupsOf(const std::vector<ParameterGroup>& groups, const Graph& graph) {
  std::vector<int> result;
  for (const Parameter& parameter : graph.parameters())
    result.push_back(GroupOf(groups, parameter));
  return result;
}

absl::Status Check(const std::vector<ParameterGroup>& groups, const Graph& graph,
                   absl::string_view of) {
  const auto parameters = graph.parameters();
  for (size_t i = 0; i < groups.size(); ++i) {
    const ParameterGroup& group = groups[i];
    const std::string field = absl::StrCat("optimizer.groups[", i, "].");
    if (std::none_of(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
          return parameter.trainable && Matches(group, parameter);
        })) {
      return WrongField(of, field + "pattern", "\"", group.pattern,
                        "\" matches no trainable parameter of the graph");
    }
    RETURN_IF_ERROR(CheckNotNegative(of, field + "weight_decay", group.weight_decay));
    RETURN_IF_ERROR(CheckNotNegative(of, field + "learning_rate_scale", group.learning_rate_scale));
  }
  return absl::OkStatus();
}

}  // namespace stagewright
