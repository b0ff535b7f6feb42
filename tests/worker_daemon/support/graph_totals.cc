#include "tests/worker_daemon/support/graph_totals.h"

#include <gtest/gtest.h>

#include <utility>

#include "worker_daemon/effects/batch_totals.h"

namespace stagewright::testing {

std::vector<at::Tensor> TotalsOf(const Graph& graph, const ParameterStore& parameters,
                                 const std::function<at::Tensor(InputId)>& input, int64_t samples) {
  std::vector<TotalId> ids;
  for (size_t i = 0; i < graph.totals().values.size(); ++i) ids.emplace_back(i);
  if (ids.empty()) return {};
  const TotalsPlan plan = PlanTotals(graph, std::move(ids));
  const auto module = TotalsModule::Create(graph, plan, parameters, at::kCPU);
  EXPECT_TRUE(module.ok()) << module.status();
  std::vector<at::Tensor> inputs;
  for (InputId id : plan.inputs) inputs.push_back(input(id));
  auto totals = module->Run(samples, inputs);
  EXPECT_TRUE(totals.ok()) << totals.status();
  return *std::move(totals);
}

}  // namespace stagewright::testing
