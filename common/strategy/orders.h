// Explicit compute orders of a strategy.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"

namespace stagewright {

// Puts explicit orders into a strategy, and into every stage the in-flight samples that they reach
// (with k = 1): the most micro-batches that one of its devices has between the forward pass and the
// backward pass or its input half. A stage without a backward pass gets one micro-batch.
// Complexity: O(steps log steps). Steps that name no stage are left to CheckStrategy.
void SetOrders(const Graph& graph, std::vector<DeviceOrder> orders, Strategy& strategy);

// Orders as text, a line per device: "device 0: F0.0 F0.1 B0.0 F1.2", a step being the pass (F, R,
// B, I, W as in common/program/action.h), the stage, a dot and the micro-batch. ParseOrders is the
// inverse; INVALID_ARGUMENT names the line.
std::string OrdersToText(const std::vector<DeviceOrder>& orders);
absl::StatusOr<std::vector<DeviceOrder>> ParseOrders(const std::string& text);

}  // namespace stagewright
