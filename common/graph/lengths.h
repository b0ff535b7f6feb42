// Models for samples of several lengths: a graph for each shape that samples have, all with the
// same operators, so that what is decided for the nodes of one holds for the nodes of all.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/graph/graph.h"

namespace stagewright {

// INVALID_ARGUMENT, naming what differs, unless `other` is `graph` but for sizes and numbers: the
// same operators on the same values, the same parameters and inputs. Numbers are integer and real
// arguments; sizes those of inputs and results. O(nodes + bytes of constants).
absl::Status CheckSameButSizes(const Graph& graph, const Graph& other);

// The inputs have equal shapes, so that no sample could tell which of the graphs it is for.
bool TakeSameSamples(const Graph& graph, const Graph& other);

// The shapes of a sample, for people: "tokens[12], target[12]".
std::string SampleText(const Graph& graph);

}  // namespace stagewright
