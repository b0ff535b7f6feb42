#include "worker_daemon/stage/operator_watch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/stage/stage_module.h"

namespace stagewright::testing {
namespace {

using Keep = StageModule::Keep;
using Pass = OperatorWatch::Pass;

// A small and a large layer, and their loss.
class OperatorWatchTest : public ::testing::Test {
 protected:
  static Graph Layers() {
    GraphMaker make;
    const int x = make.AddInput("x", {-1, 4});
    const int target = make.AddInput("target", {-1, 4});
    const int small = make.AddLinear("small", In(x), 4, 1500);
    const int large = make.AddLinear("large", Value(small), 1500, 1500);
    const int out = make.AddLinear("out", Value(large), 1500, 4);
    return make.Finish(
        make.AddNode("aten.mse_loss.default", {Value(out), In(target), Int(1)}, {Meta({})}), out);
  }

  void Run(bool halves, OperatorWatch* watch) {
    auto made = StageModule::Create(graph_, WholeGraph(graph_), {}, store_,
                                    {.mini_batch = 16, .split_backward = halves});
    ASSERT_TRUE(made.ok()) << made.status();
    StageModule& module = **made;
    for (const SampleRange range : {SampleRange{0, 8}, SampleRange{8, 16}}) {
      const OperatorWatch::Scope watched(watch, StageId(3), 8, Pass::kForward);
      ASSERT_TRUE(module
                      .Forward({0, range},
                               {{},
                                {x_.slice(0, range.begin, range.end),
                                 target_.slice(0, range.begin, range.end)}},
                               Keep::kGraph)
                      .ok());
    }
    for (const SampleRange range : {SampleRange{0, 8}, SampleRange{8, 16}}) {
      if (halves) {
        const OperatorWatch::Scope watched(watch, StageId(3), 8, Pass::kFirstHalf);
        ASSERT_TRUE(module.BackwardInput({0, range}, {}).ok());
      }
      const OperatorWatch::Scope watched(watch, StageId(3), 8, Pass::kBackward);
      ASSERT_TRUE(halves ? module.BackwardWeight({0, range}).ok()
                         : module.Backward({0, range}, {}).ok());
    }
  }

  const Graph graph_ = Layers();
  const ParameterStore store_ = ParameterStore::Load(
                                    graph_,
                                    [this] {
                                      std::vector<ParameterId> ids;
                                      for (size_t i = 0; i < graph_.parameters().size(); ++i)
                                        ids.emplace_back(i);
                                      return ids;
                                    }(),
                                    WriteWeights(graph_, "operator_watch.safetensors"), at::kCPU)
                                    .value();
  const at::Tensor x_ = Random({16, 4}, 1), target_ = Random({16, 4}, 2);
};

TEST_F(OperatorWatchTest, TimesEveryOperatorForwardAndBackward) {
  for (const bool halves : {false, true}) {
    OperatorWatch watch;
    const auto begin = std::chrono::steady_clock::now();
    Run(halves, &watch);
    const Nanos whole((std::chrono::steady_clock::now() - begin) / std::chrono::nanoseconds(1));
    const auto times = watch.Take();
    ASSERT_EQ(times.size(), 4u);
    Nanos sum = 0;
    for (const OperatorTimes& one : times) {
      EXPECT_EQ(one.stage, StageId(3));
      EXPECT_EQ(one.samples, 8);
      EXPECT_EQ(one.forwards, 2);
      EXPECT_EQ(one.backwards, 2);
      EXPECT_GT(one.forward, 0);
      EXPECT_GT(one.backward, 0) << one.node;
      sum += one.forward + one.backward;
    }
    EXPECT_LT(sum, whole);
    // Five hundred times the work.
    EXPECT_GT(times[1].forward, times[3].forward);
    EXPECT_GT(times[1].backward, times[3].backward);
    EXPECT_TRUE(watch.Take().empty());
  }
}

TEST_F(OperatorWatchTest, WithoutAScopeNothingIsSeen) {
  OperatorWatch watch;
  Run(/*halves=*/false, nullptr);
  EXPECT_TRUE(watch.Take().empty());
}

}  // namespace
}  // namespace stagewright::testing
