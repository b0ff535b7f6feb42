// Properties of lowered programs over random stage graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/cost/parameters.h"
#include "common/lowering/lower.h"
#include "common/memory/message_buffers.h"
#include "common/program/text.h"
#include "common/program/trace.h"
#include "common/strategy/check_strategy.h"
#include "common/strategy/orders.h"
#include "common/validation/validate.h"
#include "tests/support/fake_driver.h"
#include "tests/support/random.h"
#include "tests/support/random_orders.h"
#include "tests/support/schedule_cases.h"

namespace stagewright {
namespace {

using testing::FakeRun;
using testing::MakeRandomCase;
using testing::RandomCase;
using testing::Rng;
using testing::RunWithRandomDelays;
using testing::Uniform;

constexpr int kCases = 1000;

absl::StatusOr<Program> LowerCase(const RandomCase& random, bool training = true) {
  const testing::FixedCosts costs(5, 3, random.graph);
  return Lower(random.graph, random.strategy, costs, {Optimizer::kAdam, training});
}

bool WithMarks(const Program& program) {
  for (const DeviceProgram& device : program.devices) {
    for (const ProgramAction& item : device.body) {
      if (!item.after_marks.empty()) return true;
    }
  }
  return false;
}

TEST(LowerProperty, EveryProgramIsValidAndRunsUnderRandomDelays) {
  Rng rng(20250401);
  int shared = 0, with_reductions = 0, many_stages = 0, with_marks = 0;
  for (int i = 0; i < kCases; ++i) {
    RandomCase random = MakeRandomCase(rng);
    SCOPED_TRACE(i);
    random.strategy.bucket_bytes = Bytes(i % 3);  // 1: a bucket for each gradient.
    if (i % 4 == 3) random.strategy.optimizer_sharding = OptimizerSharding::kStates;
    if (i % 4 == 2) random.strategy.optimizer_sharding = OptimizerSharding::kGradients;
    ASSERT_EQ(CheckStrategy(random.graph, random.cluster, random.strategy), absl::OkStatus());
    auto program = LowerCase(random, Uniform(rng, 0, 7) > 0);
    ASSERT_EQ(program.status(), absl::OkStatus());
    ASSERT_EQ(Validate(*program, {}), absl::OkStatus()) << ToText(*program);
    const FakeRun run = RunWithRandomDelays(*program, rng, 20);
    ASSERT_TRUE(run.done);
    EXPECT_THAT(run.memory_left, ::testing::Each(Bytes(0)));
    ASSERT_EQ(CheckTrace(*program, run.trace), absl::OkStatus()) << ToText(*program);
    for (size_t s = 0; s < random.strategy.stages.size(); ++s) {
      if (!program->training || !program->stages[s].has_backward) continue;
      // Replicas drift apart by what one may have forwarded before the others backwarded.
      if (random.strategy.stages[s].devices.size() > 1) continue;
      EXPECT_EQ(run.most_in_flight[s], random.strategy.stages[s].schedule.in_flight);
    }
    shared += random.shared_devices && random.strategy.stages.size() > 1;
    with_reductions += !program->reductions.empty();
    with_marks += WithMarks(*program);
    many_stages += random.strategy.stages.size() >= 4;
  }
  // The generator reaches what it is for.
  EXPECT_GT(shared, kCases / 10);
  EXPECT_GT(with_reductions, kCases / 10);
  EXPECT_GT(many_stages, kCases / 10);
  EXPECT_GT(with_marks, kCases / 20);
}

// The passes of a device and, for each that reads messages, after which of them these are posted.
struct Posted {
  std::vector<LanePass> lane;
  // (reading pass, pass after which its receives are posted).
  std::vector<std::pair<int32_t, int32_t>> receives;
};

Posted PostedIn(const DeviceProgram& device) {
  Posted posted;
  std::vector<int32_t> pass_of(device.body.size(), -1);
  for (size_t i = 0; i < device.body.size(); ++i) {
    const auto& [kind, stage, samples, channel] = device.body[i].action;
    if (!IsCompute(kind) || kind == ActionKind::kOptimizerStep) continue;
    const auto pass = static_cast<int32_t>(posted.lane.size());
    pass_of[i] = pass;
    const bool gradients = kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
    posted.lane.push_back({kind == ActionKind::kForward ? LanePass::Kind::kForward
                           : gradients                  ? LanePass::Kind::kGradients
                                                        : LanePass::Kind::kOther,
                           stage.value(), stage.value() * 1000 + samples.begin});
    for (int32_t before : device.body[i].after) {
      const ProgramAction& other = device.body[before];
      if (!IsTransfer(other.action.kind)) continue;
      posted.receives.emplace_back(pass, other.after.empty() ? -1 : pass_of[other.after.front()]);
    }
  }
  return posted;
}

TEST(LowerProperty, PostsReceivesByTheRuleHoweverFarAheadItAllows) {
  Rng rng(11);
  int64_t receives = 0;
  for (int i = 0; i < kCases / 4; ++i) {
    RandomCase random = MakeRandomCase(rng);
    SCOPED_TRACE(i);
    const testing::FixedCosts costs(5, 3, random.graph);
    for (int32_t ahead : {1, 2, 4, 7}) {
      const ReceivePosting posting{ahead};
      const auto program =
          Lower(random.graph, random.strategy, costs, {.gradient_norm = false, .posting = posting});
      ASSERT_EQ(program.status(), absl::OkStatus());
      ASSERT_EQ(Validate(*program, {}), absl::OkStatus()) << ToText(*program);
      for (const DeviceProgram& device : program->devices) {
        const Posted posted = PostedIn(device);
        const std::vector<int32_t> after = posting.PostAfter(posted.lane);
        for (const auto& [pass, actual] : posted.receives) EXPECT_EQ(actual, after[pass]);
        receives += std::ssize(posted.receives);
      }
    }
  }
  EXPECT_GT(receives, kCases);
}

// Buckets change nothing but when sums start: each is of one stage, all of them sum what one sum
// did, and a mark lies before none of the nodes that make the bucket's gradients.
TEST(LowerProperty, BucketsSumTheSameGradientsFromTheirMarksOn) {
  Rng rng(17);
  int marks = 0;
  for (int i = 0; i < kCases / 2; ++i) {
    RandomCase random = MakeRandomCase(rng);
    SCOPED_TRACE(i);
    const auto whole = LowerCase(random);
    random.strategy.bucket_bytes = Bytes(Uniform(rng, 1, 12));
    const auto cut = LowerCase(random);
    ASSERT_EQ(cut.status(), absl::OkStatus());
    const auto summed = [](const Program& program) {
      std::map<std::vector<StageId>, std::pair<std::vector<ParameterId>, Bytes>> all;
      for (const Reduction& reduction : program.reductions) {
        auto& [parameters, bytes] = all[reduction.stages];
        parameters.insert(parameters.end(), reduction.parameters.begin(),
                          reduction.parameters.end());
        std::sort(parameters.begin(), parameters.end());
        bytes += reduction.bytes;
      }
      return all;
    };
    EXPECT_EQ(summed(*cut), summed(*whole));
    for (const DeviceProgram& device : cut->devices) {
      for (const ProgramAction& item : device.body) {
        for (const PassMark& mark : item.after_marks) {
          ++marks;
          const Reduction& reduction = cut->reductions[item.action.channel];
          ASSERT_EQ(reduction.stages, std::vector<StageId>{item.action.stage});
          EXPECT_EQ(device.body[mark.action].action.stage, item.action.stage);
          const std::vector<NodeId>& nodes = cut->stages[item.action.stage.index()].nodes;
          for (int32_t n = 0; n < mark.node; ++n) {
            for (ParameterId used : random.graph.Parameters(nodes[n]))
              EXPECT_THAT(reduction.parameters, ::testing::Not(::testing::Contains(used)));
          }
        }
      }
    }
    const auto read = ParseProgram(ToText(*cut));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ToText(*read), ToText(*cut));
  }
  EXPECT_GT(marks, kCases / 10);
}

Bytes StateOf(const Graph& graph, const std::vector<ParameterId>& ids) {
  Bytes bytes = 0;
  for (ParameterId id : ids) bytes += OptimizerStateBytes(graph.parameter(id), Optimizer::kAdam);
  return bytes;
}

// Sharing out the optimizer's state leaves the passes, their messages and what is summed as they
// are: what the replicas of one stage sum comes in shares, is gathered after the step that updates
// it, and of its state the replicas together hold what one of them held.
TEST(LowerProperty, SharedStatesAreThereOnceAndGatheredAfterTheirStep) {
  Rng rng(23);
  int shared = 0;
  for (int i = 0; i < kCases / 2; ++i) {
    RandomCase random = MakeRandomCase(rng);
    SCOPED_TRACE(i);
    random.strategy.bucket_bytes = Bytes(i % 3);
    const auto whole = LowerCase(random);
    random.strategy.optimizer_sharding = OptimizerSharding::kStates;
    const auto program = LowerCase(random);
    ASSERT_EQ(program.status(), absl::OkStatus());
    ASSERT_EQ(Validate(*program, {}), absl::OkStatus()) << ToText(*program);
    ASSERT_EQ(program->reductions.size(), whole->reductions.size());
    Bytes saved = 0;
    for (size_t r = 0; r < program->reductions.size(); ++r) {
      const Reduction& reduction = program->reductions[r];
      EXPECT_EQ(reduction.parameters, whole->reductions[r].parameters);
      EXPECT_EQ(reduction.sharded, reduction.stages.size() == 1 &&
                                       program->stages[reduction.stages[0].index()].has_backward);
      if (!reduction.sharded) continue;
      ++shared;
      saved += (std::ssize(reduction.devices) - 1) * StateOf(random.graph, reduction.parameters);
    }
    for (size_t d = 0; d < program->devices.size(); ++d) {
      const auto& body = program->devices[d].body;
      saved -= whole->devices[d].resident - program->devices[d].resident;
      std::vector<std::string> others, before;  // Other actions than sums and gathers.
      for (const ProgramAction& item : body) {
        if (!IsCollective(item.action.kind)) others.push_back(ToString(item.action));
        if (item.action.kind != ActionKind::kAllGather) continue;
        ASSERT_EQ(item.after.size(), 1u);
        const Action& step = body[item.after[0]].action;
        EXPECT_EQ(step.kind, ActionKind::kOptimizerStep);
        EXPECT_TRUE(step.channel < 0 || step.channel >= item.action.channel);
      }
      for (const ProgramAction& item : whole->devices[d].body) {
        if (!IsCollective(item.action.kind)) before.push_back(ToString(item.action));
      }
      EXPECT_EQ(others, before);
    }
    EXPECT_EQ(saved, 0);
    const auto read = ParseProgram(ToText(*program));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ToText(*read), ToText(*program));
  }
  EXPECT_GT(shared, kCases / 10);
}

// What is resident on device `d` beside the buffers of messages, which depend on the order of
// passes.
Bytes StateBytes(const RandomCase& random, const Program& program, size_t d) {
  const MessageTypes types(random.graph, Precision::kGraph);
  const DeviceProgram& device = program.devices[d];
  return device.resident - BufferBytes(types, program, device);
}

// Sharing out the gradients, too: the same reductions, but of what the replicas of one stage share
// out there is a sum for every micro-batch, behind the pass that makes its gradients and before the
// next one; after the last of them what is there is the share that the optimizer step takes.
TEST(LowerProperty, SharedGradientsAreSummedAfterEveryPass) {
  Rng rng(29);
  int several = 0;
  for (int i = 0; i < kCases / 2; ++i) {
    RandomCase random = MakeRandomCase(rng);
    SCOPED_TRACE(i);
    random.strategy.bucket_bytes = Bytes(i % 3);
    random.strategy.optimizer_sharding = OptimizerSharding::kStates;
    const auto states = LowerCase(random);
    random.strategy.optimizer_sharding = OptimizerSharding::kGradients;
    const auto program = LowerCase(random);
    ASSERT_EQ(program.status(), absl::OkStatus());
    ASSERT_EQ(Validate(*program, {}), absl::OkStatus()) << ToText(*program);
    ASSERT_EQ(program->reductions.size(), states->reductions.size());
    for (size_t r = 0; r < program->reductions.size(); ++r) {
      EXPECT_EQ(program->reductions[r].sharded, states->reductions[r].sharded);
      EXPECT_EQ(program->reductions[r].each_pass, states->reductions[r].sharded);
    }
    for (size_t d = 0; d < program->devices.size(); ++d) {
      EXPECT_EQ(StateBytes(random, *program, d), StateBytes(random, *states, d));
      std::map<int32_t, std::set<SampleRange>> sums;  // By reduction.
      for (const ProgramAction& item : program->devices[d].body) {
        if (item.action.kind != ActionKind::kReduceScatter) continue;
        EXPECT_TRUE(sums[item.action.channel].insert(item.action.samples).second);
      }
      for (const auto& [r, samples] : sums) {
        const Stage& stage = random.strategy.stages[program->reductions[r].stages.front().index()];
        EXPECT_EQ(std::ssize(samples), random.strategy.mini_batch / stage.micro_batch);
        several += samples.size() > 1;
      }
    }
    const auto read = ParseProgram(ToText(*program));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ToText(*read), ToText(*program));
  }
  EXPECT_GT(several, kCases / 10);
}

// With a norm of all gradients: the sum of one number over all devices, once each, after all other
// sums and before all optimizer steps; valid, free of deadlocks, and the only difference.
TEST(LowerProperty, AGradientNormPrecedesEveryOptimizerStep) {
  Rng rng(7);
  int with_other_sums = 0;
  for (int i = 0; i < kCases / 4; ++i) {
    const RandomCase random = MakeRandomCase(rng);
    SCOPED_TRACE(i);
    const testing::FixedCosts costs(5, 3, random.graph);
    const LowerOptions options{Optimizer::kAdam, true, /*gradient_norm=*/true};
    const auto program = Lower(random.graph, random.strategy, costs, options);
    const auto without = LowerCase(random);
    ASSERT_EQ(program.status(), absl::OkStatus());
    ASSERT_EQ(Validate(*program, {}), absl::OkStatus()) << ToText(*program);
    ASSERT_EQ(program->reductions.size(), without->reductions.size() + 1);
    const Reduction& norm = program->reductions.back();
    EXPECT_TRUE(norm.gradient_norm);
    EXPECT_EQ(norm.devices.size(), program->devices.size());
    EXPECT_EQ(norm.bytes, 8);
    for (size_t d = 0; d < program->devices.size(); ++d) {
      const auto& body = program->devices[d].body;
      ASSERT_EQ(body.size(), without->devices[d].body.size() + 1);
      const auto sum = std::find_if(body.begin(), body.end(), [&](const ProgramAction& item) {
        return item.action.kind == ActionKind::kAllReduce &&
               item.action.channel == static_cast<int32_t>(without->reductions.size());
      });
      ASSERT_NE(sum, body.end());
      const auto index = static_cast<int32_t>(sum - body.begin());
      for (const ProgramAction& item : body) {
        if (item.action.kind != ActionKind::kOptimizerStep) continue;
        EXPECT_THAT(item.after, ::testing::Contains(index));
      }
    }
    const FakeRun run = RunWithRandomDelays(*program, rng, 20);
    ASSERT_TRUE(run.done);
    ASSERT_EQ(CheckTrace(*program, run.trace), absl::OkStatus());
    const auto read = ParseProgram(ToText(*program));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(ToText(*read), ToText(*program));
    with_other_sums += !without->reductions.empty();
  }
  EXPECT_GT(with_other_sums, kCases / 40);
}

// The compute lane of a program as orders.
std::vector<DeviceOrder> OrdersOf(const Program& program) {
  std::vector<DeviceOrder> orders;
  for (const DeviceProgram& device : program.devices) {
    DeviceOrder& order = orders.emplace_back();
    order.device = device.device;
    for (const ProgramAction& item : device.body) {
      const Action& action = item.action;
      if (!IsCompute(action.kind) || action.kind == ActionKind::kOptimizerStep) continue;
      const Pass pass = action.kind == ActionKind::kForward         ? Pass::kForward
                        : action.kind == ActionKind::kRecompute     ? Pass::kRecompute
                        : action.kind == ActionKind::kBackward      ? Pass::kBackward
                        : action.kind == ActionKind::kBackwardInput ? Pass::kBackwardInput
                                                                    : Pass::kBackwardWeight;
      const int64_t micro_batch = program.stages[action.stage.index()].micro_batch;
      order.steps.push_back({action.stage, pass, action.samples.begin / micro_batch});
    }
  }
  return orders;
}

TEST(LowerProperty, ExplicitOrdersAreTheComputeLanes) {
  Rng rng(20250402);
  int shared = 0, split = 0, recompute = 0;
  for (int i = 0; i < kCases; ++i) {
    SCOPED_TRACE(i);
    RandomCase random = MakeRandomCase(rng);
    testing::DrawOrders(rng, random.graph, random.strategy);
    ASSERT_EQ(CheckStrategy(random.graph, random.cluster, random.strategy), absl::OkStatus());
    auto program = LowerCase(random);
    ASSERT_EQ(program.status(), absl::OkStatus());
    ASSERT_EQ(Validate(*program, {}), absl::OkStatus()) << ToText(*program);
    ASSERT_EQ(OrdersToText(OrdersOf(*program)), OrdersToText(random.strategy.orders));
    const FakeRun run = RunWithRandomDelays(*program, rng, 20);
    ASSERT_TRUE(run.done);
    EXPECT_THAT(run.memory_left, ::testing::Each(Bytes(0)));
    ASSERT_EQ(CheckTrace(*program, run.trace), absl::OkStatus());
    for (size_t s = 0; s < random.strategy.stages.size(); ++s) {
      const Stage& stage = random.strategy.stages[s];
      if (!program->stages[s].has_backward || stage.devices.size() > 1) continue;
      EXPECT_EQ(run.most_in_flight[s], stage.schedule.in_flight);
      recompute += stage.recompute;
    }
    shared += random.shared_devices && random.strategy.stages.size() > 1;
    split += ToText(*program).find(" W") != std::string::npos;
    // Evaluation runs the forwards in the same order.
    auto evaluation = LowerCase(random, false);
    ASSERT_EQ(evaluation.status(), absl::OkStatus());
    ASSERT_EQ(Validate(*evaluation, {}), absl::OkStatus()) << ToText(*evaluation);
  }
  EXPECT_GT(shared, kCases / 10);
  EXPECT_GT(split, kCases / 10);
  EXPECT_GT(recompute, kCases / 10);
}

TEST(LowerProperty, LoweringIsDeterministicAndTheTextRoundTrips) {
  Rng rng(7);
  for (int i = 0; i < 100; ++i) {
    const RandomCase random = MakeRandomCase(rng);
    const std::string text = ToText(*LowerCase(random));
    EXPECT_EQ(text, ToText(*LowerCase(random)));
    auto parsed = ParseProgram(text);
    ASSERT_EQ(parsed.status(), absl::OkStatus());
    EXPECT_EQ(ToText(*parsed), text);
  }
}

// Tests that a mutation of a good trace is rejected; `mutate` returns false if it does not apply.
template <typename Mutate>
void ExpectRejected(Mutate mutate) {
  Rng rng(99);
  int applied = 0;
  for (int i = 0; i < 200; ++i) {
    const RandomCase random = MakeRandomCase(rng);
    const Program program = *LowerCase(random);
    FakeRun run = RunWithRandomDelays(program, rng, 20);
    if (!mutate(rng, program, run.trace)) continue;
    ++applied;
    const absl::Status status = CheckTrace(program, run.trace);
    ASSERT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("step 0"));
  }
  EXPECT_GT(applied, 100);
}

using Trace = std::vector<TraceEvent>;

size_t Any(Rng& rng, const Trace& trace) {
  return static_cast<size_t>(Uniform(rng, 0, static_cast<int64_t>(trace.size()) - 1));
}

// Another event of the same lane as `event`, trace.size() if there is none.
size_t SameLane(const Trace& trace, size_t event) {
  for (size_t i = 0; i < trace.size(); ++i) {
    if (i != event && trace[i].device == trace[event].device &&
        LaneOf(trace[i].action) == LaneOf(trace[event].action)) {
      return i;
    }
  }
  return trace.size();
}

TEST(CheckTraceProperty, RejectsSwappedActions) {
  ExpectRejected([](Rng& rng, const Program&, Trace& trace) {
    const size_t a = Any(rng, trace);
    const size_t b = SameLane(trace, a);
    if (b == trace.size()) return false;
    std::swap(trace[a].action, trace[b].action);
    return true;
  });
}

TEST(CheckTraceProperty, RejectsADroppedEvent) {
  ExpectRejected([](Rng& rng, const Program&, Trace& trace) {
    if (trace.size() < 2) return false;  // An empty trace has no step that could miss it.
    trace.erase(trace.begin() + static_cast<int64_t>(Any(rng, trace)));
    return true;
  });
}

TEST(CheckTraceProperty, RejectsADuplicatedEvent) {
  ExpectRejected([](Rng& rng, const Program&, Trace& trace) {
    trace.push_back(trace[Any(rng, trace)]);
    return true;
  });
}

TEST(CheckTraceProperty, RejectsOverlapInALane) {
  ExpectRejected([](Rng& rng, const Program&, Trace& trace) {
    const size_t a = Any(rng, trace);
    const size_t b = SameLane(trace, a);
    if (b == trace.size()) return false;
    trace[a].start = trace[b].start;
    trace[a].end = std::max(trace[a].end, trace[b].end);
    return true;
  });
}

TEST(CheckTraceProperty, RejectsReceivesThatEndBeforeTheirSendStarts) {
  ExpectRejected([](Rng& rng, const Program& program, Trace& trace) {
    if (program.channels.empty()) return false;
    const size_t first = Any(rng, trace);
    for (size_t i = 0; i < trace.size(); ++i) {
      TraceEvent& event = trace[(first + i) % trace.size()];
      if (!IsReceive(event.action.kind)) continue;
      for (const TraceEvent& send : trace) {
        if (IsSend(send.action.kind) && send.action.channel == event.action.channel &&
            send.action.samples == event.action.samples &&
            (send.action.kind == ActionKind::kSendActivation) ==
                (event.action.kind == ActionKind::kReceiveActivation)) {
          event.start = event.end = send.start - 1;
          return true;
        }
      }
    }
    return false;
  });
}

TEST(CheckTraceProperty, RejectsAnActionThatDoesNotWait) {
  ExpectRejected([](Rng& rng, const Program& program, Trace& trace) {
    for (size_t tries = 0; tries < trace.size(); ++tries) {
      TraceEvent& event = trace[Any(rng, trace)];
      const auto row = std::find_if(program.devices.begin(), program.devices.end(),
                                    [&](const auto& d) { return d.device == event.device; });
      const auto action = std::find_if(row->body.begin(), row->body.end(),
                                       [&](const auto& a) { return a.action == event.action; });
      if (action->after.empty()) continue;
      const Action& before = row->body[action->after.front()].action;
      for (const TraceEvent& other : trace) {
        if (other.device == event.device && other.action == before) event.start = other.end - 1;
      }
      return true;
    }
    return false;
  });
}

}  // namespace
}  // namespace stagewright
