#include "common/graph/graph_data.h"

#include "absl/strings/str_cat.h"

namespace stagewright {

int64_t Parameter::Elements() const {
  int64_t product = 1;
  for (int64_t dim : shape) product *= dim;
  return product;
}

Parameter StoredTensor(const Parameter& parameter) {
  if (!parameter.slice.has_value()) return parameter;
  Parameter stored = parameter;
  stored.name = parameter.slice->whole;
  stored.aliases = parameter.slice->aliases;
  stored.shape = parameter.slice->shape;
  stored.slice.reset();
  return stored;
}

std::string PartName(const std::string& name, int32_t index, int32_t parts) {
  return absl::StrCat(name, "[", index + 1, "/", parts, "]");
}

std::vector<std::string> NamesOf(const Parameter& parameter) {
  std::vector<std::string> names = {parameter.name};
  names.insert(names.end(), parameter.aliases.begin(), parameter.aliases.end());
  return names;
}

}  // namespace stagewright
