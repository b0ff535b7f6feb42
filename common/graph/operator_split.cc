#include "common/graph/operator_split.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace stagewright {

absl::StatusOr<std::vector<OperatorSplit>> ParseOperatorSplits(std::string_view text) {
  std::vector<OperatorSplit> splits;
  const std::vector<std::string> items =
      absl::StrSplit(absl::string_view(text.data(), text.size()), ',');
  for (const std::string& item : items) {
    const size_t equals = item.rfind('=');
    OperatorSplit split;
    if (equals == std::string::npos || equals == 0 ||
        !absl::SimpleAtoi(item.substr(equals + 1), &split.parts) || split.parts < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", item, "\" is not NAME=PARTS with 2 or more parts"));
    }
    split.node = item.substr(0, equals);
    const auto same = [&](const OperatorSplit& other) { return other.node == split.node; };
    if (std::any_of(splits.begin(), splits.end(), same))
      return absl::InvalidArgumentError(absl::StrCat("\"", split.node, "\" is given twice"));
    splits.push_back(std::move(split));
  }
  return splits;
}

std::string OperatorSplitsText(const std::vector<OperatorSplit>& splits) {
  return absl::StrJoin(splits, ",", [](std::string* out, const OperatorSplit& split) {
    absl::StrAppend(out, split.node, "=", split.parts);
  });
}

}  // namespace stagewright
