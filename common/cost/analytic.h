// Times by the roofline of a kind of device.
#pragma once

#include <memory>

#include "common/cost/cost_model.h"
#include "common/graph/graph.h"

namespace stagewright {

// Roofline: time = overhead + max(flops / (peak * efficiency(flops)), bytes / bandwidth),
// efficiency(w) = e * w / (w + half). Figures for planning-only nodes scale their profiled cost
// linearly with the samples, whatever the kind of device; their backward pass splits as
// ProfiledCost says. The graph must outlive the model.
std::unique_ptr<CostModel> MakeAnalyticCostModel(const Graph& graph);

}  // namespace stagewright
