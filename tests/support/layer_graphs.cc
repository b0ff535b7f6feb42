#include "tests/support/layer_graphs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/support/graph_builder.h"

namespace stagewright::testing {

Graph LinearGraph(const std::vector<std::vector<int32_t>>& reads) {
  GraphBuilder builder("linear");
  const Argument x = builder.Feature("x", {1});
  const auto node = [](int32_t n) { return Argument{ValueRef{NodeId(n), 0}}; };
  for (size_t i = 0; i < reads.size(); ++i) {
    const std::string name = absl::StrCat("layer", i);
    const auto width = static_cast<int64_t>(std::max<size_t>(reads[i].size(), 1));
    if (reads[i].size() < 2) {
      const Argument input = reads[i].empty() ? x : node(reads[i].front());
      builder.Add("aten.linear.default", {input, builder.Weight(name, {1, width})}, {1});
      continue;
    }
    Argument::List list;
    for (int32_t read : reads[i]) list.push_back(node(read));
    // One node that both joins and has a parameter keeps the numbers of layers and nodes equal.
    builder.Add("test.linear_cat.default", {{std::move(list)}, builder.Weight(name, {1, width})},
                {1});
  }
  builder.Loss(node(static_cast<int32_t>(reads.size()) - 1), {1});
  return builder.Build();
}

Graph ChainGraph(int32_t length) {
  std::vector<std::vector<int32_t>> reads(length);
  for (int32_t i = 1; i < length; ++i) reads[i] = {i - 1};
  return LinearGraph(reads);
}

}  // namespace stagewright::testing
