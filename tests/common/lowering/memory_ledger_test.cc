#include "common/lowering/memory_ledger.h"

#include <gtest/gtest.h>

#include "common/lowering/reductions.h"
#include "tests/support/graph_builder.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::ChainGraph;
using testing::MakeStages;

// A strategy with everything that its ledger asks for.
struct Case {
  Case(Graph of, Strategy how, std::vector<bool> split = {})
      : graph(std::move(of)),
        strategy(std::move(how)),
        context{graph,
                strategy,
                options,
                Slots(strategy),
                Stages(),
                *MakeChannels(types, strategy, Stages(), Slots(strategy), true),
                MakeReductions(graph, Stages(), {}),
                StageBytes(types, costs, context.stages, context.channels.channels,
                           split.empty() ? std::vector<bool>(strategy.stages.size()) : split)},
        ledger(context) {}

  std::vector<ProgramStage> Stages() const {
    std::vector<ProgramStage> stages;
    for (const Stage& stage : strategy.stages)
      stages.push_back({stage.nodes, stage.replicated, stage.devices, stage.micro_batch});
    return stages;
  }
  // What is left after all passes of a stage's micro-batches.
  Bytes Left(const std::vector<ActionKind>& passes, StageId stage) {
    Bytes left = 0;
    for (int32_t slot = context.slots.first(stage); slot < context.slots.end(stage); ++slot) {
      for (ActionKind kind : passes) {
        const MemoryChange change = ledger.Pass({kind, slot});
        EXPECT_GE(change.acquire, 0);
        EXPECT_GE(change.release, 0);
        left += change.acquire - change.release;
      }
    }
    return left;
  }

  Graph graph;
  Strategy strategy;
  MessageTypes types{graph, Precision::kGraph};
  testing::FixedCosts costs{100, 7, graph};
  LowerOptions options;
  LoweringContext context;
  MemoryLedger ledger;
};

Case OneStage(bool recompute = false, bool split = false) {
  Graph graph = ChainGraph(2);
  Strategy strategy = MakeStages(graph, 4, {{{0, 1, 2}, {0}, 2}});
  strategy.stages[0].recompute = recompute;
  return Case(std::move(graph), std::move(strategy), {split});
}

// Layers with a parameter of four bytes.
TEST(MemoryLedger, ResidentAreWeightsAndOptimizerStateOfEveryVersion) {
  Case one = OneStage();
  EXPECT_EQ(one.ledger.Resident({StageId(0)}, 1), 2 * (4 + 8)) << "gradients come with passes";
  EXPECT_EQ(one.ledger.Resident({StageId(0)}, 3), 2 * (4 + 8) + 2 * (2 * 4));
  EXPECT_EQ(one.ledger.Resident({StageId(0)}, 1), 2 * (4 + 8))
      << "and is the same when asked again";
  for (const bool training : {true, false}) {
    Case other = OneStage();
    other.options.optimizer = Optimizer::kSgd;
    other.options.training = training;
    EXPECT_EQ(other.ledger.Resident({StageId(0)}, 1), 2 * 4);
  }
}

TEST(MemoryLedger, PassesLeaveGradientsForTheUpdate) {
  using enum ActionKind;
  const std::vector<ActionKind> whole = {kForward, kBackward};
  const std::vector<ActionKind> halves = {kForward, kBackwardInput, kBackwardWeight};
  const std::vector<ActionKind> again = {kForward, kRecompute, kBackward};
  for (const auto& [recompute, passes] :
       {std::pair(false, whole), std::pair(false, halves), std::pair(true, again)}) {
    Case one = OneStage(recompute, passes.size() == 3 && !recompute);
    EXPECT_EQ(one.ledger.Update(StageId(0)), 0) << "nothing has run";
    EXPECT_EQ(one.Left(passes, StageId(0)), 2 * 4) << passes.size() << recompute;
    EXPECT_EQ(one.ledger.Update(StageId(0)), 2 * 4);
    EXPECT_EQ(one.ledger.Update(StageId(0)), 0);
    EXPECT_EQ(one.Left(passes, StageId(0)), 2 * 4) << "the next step makes them anew";
  }
}

TEST(MemoryLedger, AForwardPassKeepsWhatIsSavedUnlessItIsRecomputed) {
  Case keeps = OneStage();
  const MemoryChange kept = keeps.ledger.Pass({ActionKind::kForward, 0});
  Case recomputes = OneStage(/*recompute=*/true);
  const MemoryChange dropped = recomputes.ledger.Pass({ActionKind::kForward, 0});
  EXPECT_GT(kept.acquire, kept.release);
  EXPECT_EQ(dropped.acquire, dropped.release);
  const MemoryChange remade = recomputes.ledger.Pass({ActionKind::kRecompute, 0});
  EXPECT_EQ(remade.acquire - remade.release, kept.acquire - kept.release);
}

// Both stages on one device use the same parameter.
TEST(MemoryLedger, SharedGradientsCountOnce) {
  testing::GraphBuilder builder("tied");
  const Argument tied = builder.Weight("tied", {1, 1});
  Argument x = builder.Feature("x", {1});
  for (int layer = 0; layer < 2; ++layer) x = builder.Add("aten.linear.default", {x, tied}, {1});
  builder.Loss(x, {1});
  Graph graph = builder.Build();
  Strategy strategy = MakeStages(graph, 2, {{{0}, {0}, 2}, {{1, 2}, {0}, 2}});
  Case tied_stages(std::move(graph), std::move(strategy));
  const int32_t first = tied_stages.context.slots.first(StageId(0));
  const int32_t second = tied_stages.context.slots.first(StageId(1));
  tied_stages.ledger.Pass({ActionKind::kForward, first});
  tied_stages.ledger.Pass({ActionKind::kForward, second});
  tied_stages.ledger.Pass({ActionKind::kBackward, second});
  tied_stages.ledger.Pass({ActionKind::kBackward, first});
  EXPECT_EQ(tied_stages.ledger.Update(StageId(1)), 4);
  EXPECT_EQ(tied_stages.ledger.Update(StageId(0)), 0);
}

TEST(MemoryLedger, MessagesLieInBuffersUnlessTheDeviceIsTheSame) {
  const auto received = [](const Graph& graph, const std::vector<int32_t>& second_nodes,
                           int32_t second_device) {
    Case two(graph, MakeStages(graph, 8, {{{0}, {0}, 8}, {second_nodes, {second_device}, 8}}));
    return two.ledger.ReceivedActivation(two.context.PieceOf(0));
  };
  const Graph executable = ChainGraph(2);
  EXPECT_EQ(received(executable, {1, 2}, 1), 0);
  EXPECT_EQ(received(executable, {1, 2}, 0), 8 * 4);
  EXPECT_EQ(received(testing::TwoProfiledNodes(), {1}, 1), 1000);
}

TEST(MemoryLedger, OutputsGoWhenSentWhereNothingElseHoldsThem) {
  const auto sent = [](bool recompute) {
    Graph graph = ChainGraph(2);
    Strategy strategy = MakeStages(graph, 4, {{{0}, {0}, 4}, {{1, 2}, {1}, 4}});
    strategy.stages[0].recompute = recompute;
    Case two(std::move(graph), std::move(strategy));
    EXPECT_EQ(two.ledger.SentGradient(two.context.PieceOf(0)), 4 * 4);
    return two.ledger.SentActivation(two.context.PieceOf(0));
  };
  EXPECT_EQ(sent(false), 0) << "the backward pass gives back what was saved";
  EXPECT_EQ(sent(true), 4 * 4);
}

}  // namespace
}  // namespace stagewright
