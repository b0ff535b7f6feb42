#include "common/data/weights_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

struct Wrapper {
  const char* prefix;
  const char* who;
  const char* module;  // In which the wrapper keeps the module.
};
constexpr Wrapper kWrappers[] = {
    {"module.", "DistributedDataParallel and DataParallel add", "model.module"},
    {"_orig_mod.", "torch.compile adds", "model._orig_mod"},
};

// The tensor is there but for a prefix.
std::string Hint(const std::string& name, const SafetensorsHeader& file) {
  for (const Wrapper& wrapper : kWrappers) {
    if (file.Find(absl::StrCat(wrapper.prefix, name)) == nullptr) continue;
    return absl::StrCat(", but \"", wrapper.prefix, name, "\": \"", wrapper.prefix, "\" is what ",
                        wrapper.who, "; save ", wrapper.module, ".state_dict() instead");
  }
  return "";
}

}  // namespace

absl::Status CheckParameter(const Parameter& own, const SafetensorsHeader& file) {
  const Parameter parameter = StoredTensor(own);
  if (parameter.data.has_value()) return absl::OkStatus();
  const SafetensorsEntry* stored = file.Find(parameter.name);
  for (const std::string& alias : parameter.aliases) {
    if (stored == nullptr) stored = file.Find(alias);
  }
  if (stored == nullptr) {
    return absl::NotFoundError(absl::StrCat(file.path, ": there is no tensor \"", parameter.name,
                                            "\"", Hint(parameter.name, file)));
  }
  if (stored->dtype == parameter.dtype && stored->shape == parameter.shape) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file.path, ": tensor \"", stored->name, "\" is ", Describe(stored->dtype, stored->shape),
      ", the graph says ", Describe(parameter.dtype, parameter.shape)));
}

absl::Status CheckWeights(const Graph& graph, const SafetensorsHeader& file) {
  for (const Parameter& parameter : graph.parameters())
    RETURN_IF_ERROR(CheckParameter(parameter, file));
  return absl::OkStatus();
}

}  // namespace stagewright
