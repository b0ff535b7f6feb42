// Planning-only graphs whose times follow from the arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/units.h"
#include "common/graph/graph.h"

namespace stagewright::testing {

// A planning-only node: costs of one sample, exactly linear in the samples.
struct Work {
  Nanos forward = 0;
  Nanos backward = 0;
  Bytes activation_bytes = 0;
  Bytes parameter_bytes = 0;
  std::vector<int32_t> after;
};
// Nodes "n0", "n1", ...
Graph ProfiledGraph(const std::vector<Work>& nodes);
// `length` equal nodes in a row.
Graph ProfiledChain(int32_t length, Work each);

// Two nodes, one after the other; of each, 1000 bytes for 8 samples leave and are saved.
Graph TwoProfiledNodes();

}  // namespace stagewright::testing
