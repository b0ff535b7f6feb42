// Times by the roofline of a kind of device.
#pragma once

#include <memory>

#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/training/precision.h"

namespace stagewright {

// Roofline: time = overhead + max(flops / (peak * efficiency), bytes / bandwidth), for products
// with the peak of the type in which `precision` has them and the efficiency of the device kind
// (device_kind.h). Types are those of a graph in one piece (common/training/autocast.h): what
// stages exchange, in the graph's types, is cast once more than this counts. Figures for
// planning-only nodes scale their profiled cost linearly with the samples, whatever the kind of
// device and the precision; their backward pass splits as ProfiledCost says. The graph must outlive
// the model.
std::unique_ptr<CostModel> MakeAnalyticCostModel(const Graph& graph,
                                                 Precision precision = Precision::kGraph);

}  // namespace stagewright
