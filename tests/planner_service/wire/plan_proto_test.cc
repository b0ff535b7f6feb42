#include "planner_service/wire/plan_proto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/wire/graph_proto.h"
#include "planner_service/front_door/check_request.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Text(const PlanOptions& options) {
  PlanRequest request;
  request.mini_batch = 8;
  request.options = options;
  return OptionsText(request);
}

TEST(PlanProtoTest, AnEmptyMessageIsTheDefaultOptions) {
  EXPECT_EQ(Text(FromProto(v1::PlanOptions())), Text(PlanOptions()));
}

TEST(PlanProtoTest, EveryOptionArrives) {
  v1::PlanOptions proto;
  proto.set_micro_batch(2);
  proto.set_max_stages(7);
  proto.set_num_stages(5);
  proto.set_forbid_replicas(true);
  proto.set_per_stage_micro_batch(true);
  proto.set_max_k(3);
  proto.set_recompute(v1::RECOMPUTE_POLICY_NEVER);
  proto.set_max_loops(4);
  proto.set_forbid_split_backward(true);
  proto.set_sequential(true);
  proto.set_asynchronous(true);
  proto.set_vertical_sync(true);
  proto.set_seed(11);
  proto.set_effort(5);
  proto.set_batch_statistics(v1::BATCH_STATISTICS_MICRO);
  proto.set_manual("{}");
  EXPECT_EQ(Text(FromProto(proto)),
            "mini_batch=8 optimizer=adam micro_batch=2 max_stages=7 num_stages=5 replicas=no "
            "per_stage_micro_batch=yes max_k=3 recompute=never max_loops=4 split_backward=no "
            "sequential=yes asynchronous=yes vertical_sync=yes seed=11 effort=5 "
            "batch_statistics=micro "
            "manual=2_bytes");
  EXPECT_EQ(FromProto(proto).manual, "{}");
  proto.set_recompute(v1::RECOMPUTE_POLICY_ALWAYS);
  EXPECT_EQ(FromProto(proto).recompute, RecomputePolicy::kAlways);
}

TEST(PlanProtoTest, APlanForOtherDevicesIsOneForThoseOfTheCluster) {
  testing::Rng random(3);
  v1::PlanRequest request;
  *request.mutable_problem()->mutable_graph() = ToProto(testing::RandomNetwork(random, 6));
  request.mutable_problem()->set_cluster_preset("cpu:2");
  const std::string plan = R"({"stages":[{"devices":["w2/cpu0"]},{"devices":["w1/cpu0"]}]})";
  request.mutable_options()->set_manual(plan);
  EXPECT_EQ(FromProto(request)->request.options.manual, plan) << "nothing says what it is for";
  for (const char* device : {"w1/cpu0", "w2/cpu0"})
    request.mutable_options()->add_found_for(device);
  EXPECT_EQ(FromProto(request)->request.options.manual,
            R"({"stages":[{"devices":[1]},{"devices":[0]}]})");
  request.mutable_problem()->set_cluster_preset("cpu:1");
  EXPECT_EQ(FromProto(request)->request.options.manual, plan) << "there are too few";
  const std::string own = R"({"stages":[{"devices":["node1/device0"]}]})";
  request.mutable_problem()->set_cluster_preset("cpu:2");
  request.mutable_options()->set_manual(own);
  EXPECT_EQ(FromProto(request)->request.options.manual, own);
}

TEST(PlanProtoTest, DevicesWithoutRatesNeedMeasuredTimes) {
  testing::Rng random(3);
  v1::PlanningProblem problem;
  *problem.mutable_graph() = ToProto(testing::RandomNetwork(random, 6));
  problem.mutable_graph()->set_name("captured");
  problem.set_cluster_preset("uniform:2");
  problem.set_mini_batch(4);
  const absl::Status refused = FromProto(problem).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("problem.cluster: device kind \"profiled\""),
                    HasSubstr("\"captured\" has none: use a preset with rates (summit:N")));
  problem.set_cluster_preset("summit:1");
  EXPECT_TRUE(FromProto(problem).ok()) << FromProto(problem).status();
  EXPECT_EQ(FromProto(problem)->request.precision, Precision::kGraph);
  problem.set_precision(v1::PRECISION_BF16);
  EXPECT_EQ(FromProto(problem)->request.precision, Precision::kBFloat16);
  problem.set_precision(static_cast<v1::Precision>(77));
  EXPECT_EQ(FromProto(problem).status().message(), "problem.precision unknown precision 77");
  problem.clear_precision();
  problem.set_cluster_preset("uniform:2");
  *problem.mutable_graph() = ToProto(testing::ProfiledChain(3, {1000, 2000, 0, 0, {}}));
  EXPECT_TRUE(FromProto(problem).ok()) << FromProto(problem).status();
}

TEST(PlanProtoTest, ExplanationsRoundTrip) {
  Explanation explanation;
  explanation.step_time = 10;
  explanation.compute = 4;
  explanation.links = 3;
  explanation.memory = 2;
  explanation.bubble = 1;
  explanation.binding = Binding::kMemory;
  explanation.bottleneck = StageId(3);
  explanation.bottleneck_device = "node0/device1";
  explanation.cuts = {
      {StageId(0), StageId(1), {"a to stage 1", 12, ""}, {"", std::nullopt, "why"}}};
  explanation.cuts_left_out = 6;
  explanation.levers = {{"links twice as fast", 9, ""}};
  const v1::Explanation proto = ToProto(explanation);
  const Explanation again = FromProto(proto);
  EXPECT_EQ(ToProto(again).SerializeAsString(), proto.SerializeAsString());
  EXPECT_EQ(ToText(again), ToText(explanation));
  EXPECT_EQ(again.binding, Binding::kMemory);
  EXPECT_EQ(again.cuts.at(0).smaller.step_time, 12);
  EXPECT_FALSE(again.cuts.at(0).larger.step_time.has_value());
}

}  // namespace
}  // namespace stagewright
