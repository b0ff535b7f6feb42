#include "worker_daemon/update/optimizer_config.h"

#include <fnmatch.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

struct Field {
  std::string name;
  double value;
  bool zero;   // It may be 0.
  double end;  // It is below.
};

bool Matches(const ParameterGroup& group, const Parameter& parameter) {
  const auto matches = [&](const std::string& name) {
    return fnmatch(group.pattern.c_str(), name.c_str(), 0) == 0;
  };
  return matches(parameter.name) ||
         std::any_of(parameter.aliases.begin(), parameter.aliases.end(), matches);
}

}  // namespace

absl::Status CheckOptimizer(const OptimizerConfig& config) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<Field> fields = {{"learning_rate", config.learning_rate, false, infinity},
                               {"weight_decay", config.weight_decay, true, infinity},
                               {"max_gradient_norm", config.max_gradient_norm, true, infinity}};
  if (config.kind == OptimizerKind::kAdam) {
    fields.push_back({"beta1", config.beta1, true, 1});
    fields.push_back({"beta2", config.beta2, true, 1});
    fields.push_back({"epsilon", config.epsilon, false, infinity});
  } else {
    fields.push_back({"momentum", config.momentum, true, 1});
  }
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const ParameterGroup& group = config.groups[i];
    const std::string of = absl::StrCat("groups[", i, "].");
    fields.push_back({of + "weight_decay", group.weight_decay, true, infinity});
    fields.push_back({of + "learning_rate_scale", group.learning_rate_scale, true, infinity});
  }
  for (const Field& field : fields) {
    const bool in_range = (field.zero ? field.value >= 0 : field.value > 0);
    if (in_range && field.value < field.end) continue;
    return absl::InvalidArgumentError(absl::StrCat("optimizer.", field.name, ": ", field.value,
                                                   " is not in ", field.zero ? "[" : "(", "0, ",
                                                   field.end, ")"));
  }
  if (config.kind == OptimizerKind::kSgd && config.nesterov && config.momentum == 0)
    return absl::InvalidArgumentError("optimizer.nesterov: it needs momentum");
  return CheckSchedule(config.schedule);
}

absl::StatusOr<std::vector<int>> GroupsOf(const Graph& graph, const OptimizerConfig& config) {
  std::vector<int> groups(graph.parameters().size(), -1);
  for (size_t g = 0; g < config.groups.size(); ++g) {
    bool used = false;
    for (size_t p = 0; p < groups.size(); ++p) {
      const Parameter& parameter = graph.parameters()[p];
      if (!Matches(config.groups[g], parameter)) continue;
      used = used || parameter.trainable;
      if (groups[p] < 0) groups[p] = static_cast<int>(g);
    }
    if (!used) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer.groups[", g, "].pattern: \"", config.groups[g].pattern,
                       "\" matches no trainable parameter of graph \"", graph.name(), "\""));
    }
  }
  return groups;
}

}  // namespace stagewright
