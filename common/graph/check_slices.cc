#include "common/graph/check_slices.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

absl::Status Bad(const Parameter& parameter, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("parameters: \"", parameter.name, "\".slice: ", what));
}

absl::Status CheckShape(const Parameter& parameter) {
  const ParameterSlice& slice = *parameter.slice;
  const auto rank = static_cast<int32_t>(slice.shape.size());
  if (slice.whole.empty()) return Bad(parameter, "the tensor has no name");
  if (slice.dim < 0 || slice.dim >= rank || slice.shape.size() != parameter.shape.size())
    return Bad(parameter, absl::StrCat("dimension ", slice.dim, " does not exist"));
  if (parameter.data.has_value() || !parameter.aliases.empty())
    return Bad(parameter, "a slice is no constant and has no aliases of its own");
  for (int32_t d = 0; d < rank; ++d) {
    const int64_t size = parameter.shape[d];
    const bool fits = d == slice.dim ? slice.begin >= 0 && size > 0 && slice.shape[d] >= size &&
                                           slice.begin <= slice.shape[d] - size
                                     : size == slice.shape[d];
    if (!fits) return Bad(parameter, absl::StrCat("dimension ", d, " leaves the tensor"));
  }
  return absl::OkStatus();
}

bool SameTensor(const Parameter& a, const Parameter& b) {
  return a.slice->shape == b.slice->shape && a.slice->dim == b.slice->dim &&
         a.slice->aliases == b.slice->aliases && a.dtype == b.dtype && a.trainable == b.trainable &&
         a.buffer == b.buffer;
}

// All of a tensor, each entry once.
absl::Status CheckTiles(std::vector<const Parameter*> slices) {
  std::sort(slices.begin(), slices.end(), [](const Parameter* a, const Parameter* b) {
    return a->slice->begin < b->slice->begin;
  });
  int64_t end = 0;
  for (const Parameter* parameter : slices) {
    const ParameterSlice& slice = *parameter->slice;
    if (!SameTensor(*parameter, *slices.front()))
      return Bad(*parameter, absl::StrCat("\"", slice.whole, "\" is told in two ways"));
    if (slice.begin != end)
      return Bad(*parameter, absl::StrCat("begins at ", slice.begin, ", not at ", end));
    end += parameter->shape[slice.dim];
  }
  const ParameterSlice& last = *slices.back()->slice;
  if (end != last.shape[last.dim]) {
    return Bad(*slices.back(),
               absl::StrCat("ends at ", end, ", \"", last.whole, "\" at ", last.shape[last.dim]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSlices(const std::vector<Parameter>& parameters) {
  std::map<std::string, std::vector<const Parameter*>> slices;
  for (const Parameter& parameter : parameters) {
    if (!parameter.slice.has_value()) continue;
    RETURN_IF_ERROR(CheckShape(parameter));
    slices[parameter.slice->whole].push_back(&parameter);
  }
  if (slices.empty()) return absl::OkStatus();
  std::set<std::string> names;
  for (const Parameter& parameter : parameters) {
    names.insert(parameter.name);
    names.insert(parameter.aliases.begin(), parameter.aliases.end());
  }
  for (const auto& [whole, of_one] : slices) {
    RETURN_IF_ERROR(CheckTiles(of_one));
    for (const std::string& name : NamesOf(StoredTensor(*of_one.front()))) {
      if (!names.insert(name).second)
        return Bad(*of_one.front(), absl::StrCat("the name \"", name, "\" is used twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace stagewright
