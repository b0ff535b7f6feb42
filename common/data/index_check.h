// Whether indices among samples are what the graph's operators take (index_bounds.h). An embedding
// says of one that is not only that there is one; a GPU does not even say which operator it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/index_bounds.h"

namespace stagewright {

class IndexCheck {
 public:
  // Without a graph everything is allowed.
  IndexCheck() = default;
  explicit IndexCheck(const Graph& graph);

  // Whether any bounds are known for the input.
  bool Applies(InputId input) const;

  // What is wrong with the first bad entry of `samples` samples of the input, whose bytes are
  // `data`: "holds 9 at [3], the table of \"embedding\" has rows 0 to 7"; and, as an index among
  // them, its sample. Empty if nothing is. O(bytes).
  struct Finding {
    int64_t sample = 0;
    std::string what;
  };
  Finding Check(InputId input, int64_t samples, const std::byte* data) const;

 private:
  struct Rule {
    IndexBounds bounds;
    std::string takes;  // "the table of \"embedding\" has rows 0 to 7".
    bool whole = true;  // All entries of a sample get there.
  };
  struct OfInput {
    DType dtype = DType::kInt64;
    int64_t rows = 1;            // Entries of the first dimension that make up a sample.
    std::vector<int64_t> shape;  // The shape of one such entry.
    std::vector<Rule> rules;
  };
  template <typename Element>
  Finding CheckRule(const OfInput& of, const Rule& rule, int64_t samples,
                    const std::byte* data) const;

  std::vector<OfInput> inputs_;  // By InputId.
};

}  // namespace stagewright
