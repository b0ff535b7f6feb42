// The cuts that the recurrence may make.
//
// A cut of the model is a downset of its layers: what runs before it. A chain of n layers has
// n + 1; parallel branches multiply, so that a model of a few hundred operators can have more than
// fit in memory. States holds all of them where they are few, and otherwise the prefixes of several
// topological orders, which any stage may still run between: from a prefix of one order to a larger
// prefix of another.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/dag.h"
#include "planner_service/planner/planner.h"

namespace stagewright::pipedream {

class States {
 public:
  // All downsets if there are at most `most`, else prefixes of linear orders, evenly thinned out by
  // `weight` if these are more: each layer's share of the work. Stops early, with fewer orders, if
  // the context expires. O(states * layers / 64 + states^2 layers / 64).
  States(const Dag& dag, const std::vector<double>& weight, const std::vector<double>& output,
         int32_t most, const SearchContext& context);

  // State 0 is empty, the last one has all layers; a smaller state never has a larger index.
  int32_t size() const { return static_cast<int32_t>(members_.size()); }
  bool complete() const { return complete_; }  // All downsets are there.
  bool Has(int32_t state, int32_t layer) const {
    return (members_[state][layer >> 6] >> (layer & 63)) & 1;
  }
  // The states strictly inside `state` but the empty one; largest index first.
  const std::vector<int32_t>& Before(int32_t state) const { return before_[state]; }
  // Layers of `to` that are not in `from`, ascending.
  std::vector<int32_t> Between(int32_t from, int32_t to) const;

  // Sum of `values`, by layer, over each state. O(states * layers) at worst, O(layers) on chains.
  std::vector<double> Sum(const std::vector<double>& values) const;
  // Sum over the layers of each state with a successor outside of it.
  std::vector<double> Boundary(const Dag& dag, const std::vector<double>& output) const;

 private:
  int32_t layers_ = 0;
  bool complete_ = false;
  std::vector<std::vector<uint64_t>> members_;  // A bit row each.
  std::vector<std::vector<int32_t>> before_;
};

}  // namespace stagewright::pipedream
