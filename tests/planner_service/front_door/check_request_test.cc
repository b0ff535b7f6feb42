#include "planner_service/front_door/check_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

PlanRequest Good() {
  PlanRequest request;
  request.mini_batch = 24;
  return request;
}

TEST(CheckRequestTest, MiniBatchesAreBounded) {
  const Graph graph = testing::ProfiledChain(1, {1, 1, 0, 0, {}});
  const Cluster cluster = testing::FlatCluster(1);
  PlanRequest request = Good();
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = kMostMiniBatch;
  EXPECT_EQ(CheckProblem(request), absl::OkStatus());
  for (const int64_t wrong : {int64_t{0}, kMostMiniBatch + 1}) {
    request.mini_batch = wrong;
    const absl::Status status = CheckProblem(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("mini_batch: must be at "), HasSubstr(std::to_string(wrong))));
  }
}

TEST(CheckRequestTest, OptionsThatAreWrongAreNamed) {
  EXPECT_TRUE(CheckOptions(Good()).ok());
  const std::vector<std::pair<std::function<void(PlanOptions&)>, const char*>> cases = {
      {[](PlanOptions& o) { o.micro_batch = -1; }, "options.micro_batch: must not be negative"},
      {[](PlanOptions& o) { o.micro_batch = 5; }, "options.micro_batch: 5 does not divide"},
      {[](PlanOptions& o) { o.micro_batch = 48; }, "options.micro_batch: 48 does not divide"},
      {[](PlanOptions& o) { o.num_stages = -2; }, "options.num_stages: must not be negative"},
      {[](PlanOptions& o) { o.max_stages = -2; }, "options.max_stages: must not be negative"},
      {[](PlanOptions& o) { o.num_stages = 4, o.max_stages = 3; }, "4 is more than options.max_"},
      {[](PlanOptions& o) { o.max_k = 0; }, "options.max_k: must be at least 1"},
      {[](PlanOptions& o) { o.effort = 0; }, "options.effort: must be between 1 and 1000, is 0"},
      {[](PlanOptions& o) { o.effort = 1001; }, "options.effort: must be between 1 and 1000"},
      {[](PlanOptions& o) { o.max_loops = -1; }, "options.max_loops: must not be negative"},
      {[](PlanOptions& o) { o.vertical_sync = true; },
       "options.vertical_sync: needs options.async"},
  };
  for (const auto& [spoil, message] : cases) {
    PlanRequest request = Good();
    spoil(request.options);
    const absl::Status status = CheckOptions(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

// A strategy of two stages with micro-batch 4.
Outcome Answer() {
  Outcome outcome;
  outcome.termination = Termination::kFeasible;
  Strategy strategy;
  strategy.mini_batch = 24;
  strategy.stages.resize(2);
  for (int i = 0; i < 2; ++i) {
    strategy.stages[i].micro_batch = 4;
    strategy.stages[i].devices = {DeviceId(2 * i), DeviceId(2 * i + 1)};
  }
  outcome.strategy = strategy;
  return outcome;
}

TEST(CheckRequestTest, AnswersThatBreakTheRequestAreThePlannersFault) {
  EXPECT_TRUE(CheckOutcome(Good(), "p", Answer()).ok());
  const std::vector<std::pair<std::function<void(PlanRequest&, Outcome&)>, const char*>> cases = {
      {[](PlanRequest& r, Outcome&) { r.mini_batch = 12; }, "mini-batch of 24 instead of 12"},
      {[](PlanRequest& r, Outcome&) { r.options.num_stages = 3; }, "2 stages instead of 3"},
      {[](PlanRequest& r, Outcome&) { r.options.max_stages = 1; }, "2 stages, more than 1"},
      {[](PlanRequest& r, Outcome&) { r.options.micro_batch = 2; }, "micro-batch 4 in stage 0"},
      {[](PlanRequest& r, Outcome&) { r.options.allow_replicas = false; }, "replicas in stage 0"},
      {[](PlanRequest&, Outcome& o) { o.strategy->stages[1].schedule.k = 2; }, "k = 2 in stage 1"},
      {[](PlanRequest&, Outcome& o) { o.strategy->stages[1].micro_batch = 8; }, "stages 0 and 1"},
      {[](PlanRequest& r, Outcome&) { r.options.sequential = true; }, "instead of a chain"},
      {[](PlanRequest&, Outcome& o) { o.strategy->asynchronous = true; }, "an asynchronous"},
      {[](PlanRequest& r, Outcome& o) {
         r.options.recompute = RecomputePolicy::kNever;
         o.strategy->stages[1].recompute = true;
       },
       "recomputation in stage 1"},
      {[](PlanRequest& r, Outcome& o) {
         r.options.recompute = RecomputePolicy::kAlways;
         o.strategy->stages[0].recompute = true;
       },
       "no recomputation in stage 1"},
      {[](PlanRequest& r, Outcome&) { r.options.asynchronous = true; }, "a synchronous"},
      {[](PlanRequest& r, Outcome& o) {
         r.options.asynchronous = r.options.vertical_sync = true;
         o.strategy->asynchronous = true;
       },
       "no vertical sync"},
      {[](PlanRequest& r, Outcome& o) {
         r.options.asynchronous = true;
         o.strategy->asynchronous = o.strategy->vertical_sync = true;
       },
       "vertical sync, against"},
      {[](PlanRequest& r, Outcome& o) {
         r.options.max_loops = 1;
         o.strategy->stages[1].devices = {DeviceId(1)};
       },
       "more than 1 stages on device 1"},
      {[](PlanRequest& r, Outcome& o) {
         r.options.split_backward = false;
         o.strategy->orders = {{DeviceId(0), {{StageId(0), Pass::kBackwardInput, 0}}}};
       },
       "a split backward pass"},
      {[](PlanRequest&, Outcome& o) { o.strategy.reset(); }, "claims feasible without a strategy"},
      {[](PlanRequest&, Outcome& o) { o.termination = Termination::kInfeasible; },
       "claims infeasible and gives a strategy"},
  };
  for (const auto& [spoil, message] : cases) {
    PlanRequest request = Good();
    Outcome outcome = Answer();
    spoil(request, outcome);
    const absl::Status status = CheckOutcome(request, "p", outcome);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'p'"), HasSubstr(message)));
  }
  Outcome limit;
  limit.termination = Termination::kLimit;
  EXPECT_TRUE(CheckOutcome(Good(), "p", limit).ok());
}

TEST(CheckRequestTest, OptionsTextTellsAllOptionsApart) {
  const std::string text = OptionsText(Good());
  EXPECT_EQ(text,
            "mini_batch=24 optimizer=adam micro_batch=any max_stages=any num_stages=any "
            "replicas=yes per_stage_micro_batch=no max_k=1 recompute=allowed max_loops=any "
            "split_backward=yes sequential=no asynchronous=no vertical_sync=no seed=1 "
            "batch_statistics=whole");
  PlanRequest other = Good();
  other.options.per_stage_micro_batch = true;
  EXPECT_NE(OptionsText(other), text);
  other = Good();
  other.options.optimizer_sharding = OptimizerSharding::kStates;
  EXPECT_EQ(OptionsText(other), text + " optimizer_sharding=states");
  other.options.optimizer_sharding = OptimizerSharding::kGradients;
  EXPECT_EQ(OptionsText(other), text + " optimizer_sharding=gradients");
  other.options.optimizer_sharding = std::nullopt;
  other.options.bucket_bytes = Bytes(1000);
  EXPECT_EQ(OptionsText(other), text + " optimizer_sharding=auto bucket_bytes=1000");
}

}  // namespace
}  // namespace stagewright
