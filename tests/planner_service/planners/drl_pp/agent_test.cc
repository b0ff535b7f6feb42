#include "planner_service/planners/drl_pp/agent.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace stagewright {
namespace {

constexpr int32_t kPartitions = 3;

// Two branches of unequal length between the first group and the last.
Dag Branches() {
  return Dag::Create(8, {{0, 1}, {1, 2}, {2, 3}, {3, 7}, {0, 4}, {4, 5}, {5, 7}, {0, 6}, {6, 7}})
      .value();
}

// The schemes that are judged together have cuts at different places and walks of unequal length.
TEST(AgentTest, SchemesThatAreJudgedTogetherHaveTheProbabilitiesTheyWereDrawnWith) {
  at::set_num_threads(1);
  const Dag dag = Branches();
  Agent agent(3);
  RandomEngine random(5);
  const torch::Tensor features = torch::rand({dag.size(), kNodeFeatures});
  const torch::Tensor nodes = agent.Encode(features, torch::eye(dag.size()));
  std::vector<Scheme> schemes;
  for (int i = 0; i < 6; ++i)
    schemes.push_back(agent.SampleScheme(nodes, dag, kPartitions, random));
  const auto [shortest, longest] = std::minmax_element(
      schemes.begin(), schemes.end(),
      [](const Scheme& a, const Scheme& b) { return a.decisions.size() < b.decisions.size(); });
  ASSERT_LT(shortest->decisions.size(), longest->decisions.size());
  const std::vector<Judged> judged = agent.JudgeSchemes(nodes, dag, kPartitions, schemes);
  ASSERT_EQ(judged.size(), schemes.size());
  for (size_t i = 0; i < schemes.size(); ++i) {
    ASSERT_EQ(judged[i].log_probabilities.numel(),
              static_cast<int64_t>(schemes[i].decisions.size()));
    for (size_t d = 0; d < schemes[i].decisions.size(); ++d) {
      EXPECT_NEAR(judged[i].log_probabilities[static_cast<int64_t>(d)].item<float>(),
                  schemes[i].log_probabilities[d], 1e-4)
          << "scheme " << i << ", decision " << d;
    }
    EXPECT_GT(judged[i].entropy.item<float>(), 0);
    const Judged alone = agent.JudgeSchemes(nodes, dag, kPartitions, {schemes[i]}).front();
    EXPECT_NEAR(judged[i].entropy.item<float>(), alone.entropy.item<float>(), 1e-4);
  }
  (judged.front().log_probabilities.sum() + judged.back().entropy).backward();
  for (const auto& parameter : agent.named_parameters()) {
    if (parameter.value().grad().defined()) {
      EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
    }
  }
}

TEST(AgentTest, NoDecisionsHaveNoProbabilities) {
  const Dag dag = Branches();
  Agent agent(3);
  const torch::Tensor nodes = torch::rand({dag.size(), Agent::kWidth});
  const std::vector<Judged> judged = agent.JudgeSchemes(nodes, dag, 1, {Scheme{}, Scheme{}});
  ASSERT_EQ(judged.size(), 2u);
  EXPECT_EQ(judged[0].log_probabilities.numel(), 0);
  EXPECT_EQ(judged[1].entropy.item<float>(), 0);
}

}  // namespace
}  // namespace stagewright
