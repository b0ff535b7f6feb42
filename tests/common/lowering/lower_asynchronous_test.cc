// Asynchronous 1F1B with weight stashing (PipeDream, section 3).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/cost/parameters.h"
#include "common/lowering/lower.h"
#include "common/memory/message_buffers.h"
#include "common/program/text.h"
#include "common/program/unroll.h"
#include "common/strategy/check_strategy.h"
#include "common/validation/validate.h"
#include "tests/support/fake_driver.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/random.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

// A chain of stages of one layer of one parameter, one sample per micro-batch.
Strategy Chain(const Graph& graph, int32_t stages, int64_t micro_batches) {
  std::vector<testing::StageSpec> specs;
  for (int32_t s = 0; s < stages; ++s) specs.push_back({{s}, {s}});
  specs.back().nodes.push_back(stages);
  Strategy strategy = testing::MakeStages(graph, micro_batches, specs);
  strategy.asynchronous = true;
  return strategy;
}

Program LowerAsynchronous(const Graph& graph, const Strategy& strategy) {
  auto program = Lower(graph, strategy, testing::FixedCosts(100, 7, graph), {Optimizer::kSgd});
  EXPECT_EQ(program.status(), absl::OkStatus());
  EXPECT_EQ(Validate(*program, {}), absl::OkStatus()) << ToText(*program);
  return *std::move(program);
}

std::string Compute(const std::vector<ProgramAction>& section) {
  std::vector<std::string> actions;
  for (const ProgramAction& item : section) {
    if (!IsTransfer(item.action.kind)) actions.push_back(ToString(item.action));
  }
  return absl::StrJoin(actions, " ");
}

TEST(LowerAsynchronous, UpdatesFollowEveryBackwardPass) {
  const Graph graph = testing::ChainGraph(2);
  const Program program = LowerAsynchronous(graph, Chain(graph, 2, 3));
  const DeviceProgram& first = program.devices[0];
  EXPECT_EQ(Compute(first.prologue), "F0[0,1) F0[1,2)");
  EXPECT_EQ(Compute(first.body), "B0[0,1) OS0 F0[2,3) B0[1,2) OS0 F0[3,4) B0[2,3) OS0 F0[4,5)");
  EXPECT_EQ(Compute(first.epilogue), "B0[0,1) OS0 F0[2,3) B0[1,2) OS0 B0[2,3) OS0");
  EXPECT_EQ(Compute(program.devices[1].body),
            "B1[0,1) OS1 F1[1,2) B1[1,2) OS1 F1[2,3) B1[2,3) OS1 F1[3,4)");
}

TEST(LowerAsynchronous, ReplicasSumGradientsBeforeEveryUpdate) {
  const Graph graph = testing::ChainGraph(2);
  Strategy strategy = testing::MakeStages(graph, 4, {{{0}, {0, 1}, 2}, {{1, 2}, {2}, 2}});
  strategy.asynchronous = true;
  const Program program = LowerAsynchronous(graph, strategy);
  EXPECT_EQ(Compute(program.devices[1].epilogue), "B0[1,2) AR0@0 OS0 B0[3,4) AR0@0 OS0");
}

// Replays one device: updates of the weights that the forward pass of each micro-batch uses, `lag`
// older than the newest, and which its backward pass would find stashed. Versions that forward
// passes to come may use are alive like those of micro-batches in flight.
std::vector<int64_t> VersionsOf(const DeviceProgram& unrolled, int64_t lag, size_t& most_versions) {
  std::vector<int64_t> versions;
  std::map<int64_t, int64_t> stash;  // Micro-batch -> version.
  int64_t version = 0;
  most_versions = 0;
  for (const ProgramAction& item : unrolled.body) {
    const int64_t micro_batch = item.action.samples.begin;
    if (item.action.kind == ActionKind::kForward) {
      stash[micro_batch] = std::max<int64_t>(0, version - lag);
      versions.push_back(stash[micro_batch]);
    } else if (item.action.kind == ActionKind::kBackward) {
      EXPECT_EQ(stash.erase(micro_batch), 1u);
    } else if (item.action.kind == ActionKind::kOptimizerStep) {
      ++version;
    }
    std::set<int64_t> alive;
    for (int64_t kept = std::max<int64_t>(0, version - lag); kept <= version; ++kept)
      alive.insert(kept);
    for (const auto& [m, of] : stash) alive.insert(of);
    most_versions = std::max(most_versions, alive.size());
  }
  EXPECT_TRUE(stash.empty());
  return versions;
}

// Section 3.4: the t-th gradient of n stages is that of (w_1^(t-n+1), w_2^(t-n+2), ..., w_n^t).
TEST(LowerAsynchronous, WeightVersionsFollowPipeDreamsEquations) {
  for (int32_t n = 1; n <= 5; ++n) {
    for (int64_t micro_batches : {5, 7, 12}) {
      const Graph graph = testing::ChainGraph(n);
      const Program program = LowerAsynchronous(graph, Chain(graph, n, micro_batches));
      const Program unrolled = Unroll(program, 4);
      for (int32_t s = 1; s <= n; ++s) {
        size_t most = 0;
        const std::vector<int64_t> versions = VersionsOf(unrolled.devices[s - 1], 0, most);
        ASSERT_EQ(versions.size(), static_cast<size_t>(4 * micro_batches));
        for (int64_t t = 0; t < 4 * micro_batches; ++t)
          EXPECT_EQ(versions[static_cast<size_t>(t)], std::max<int64_t>(0, t - n + s));
        // As many versions as micro-batches in flight; a parameter has 4 bytes.
        EXPECT_EQ(most, static_cast<size_t>(n - s + 1));
        const DeviceProgram& device = program.devices[s - 1];
        EXPECT_EQ(
            device.resident - BufferBytes(MessageTypes(graph, Precision::kGraph), program, device),
            4 + 4 * (n - s));
      }
    }
  }
}

// Section 3.4, vertical sync: that of (w_1^(t-n+1), w_2^(t-n+1), ..., w_n^(t-n+1)).
TEST(LowerAsynchronous, VerticalSyncUsesTheSameVersionInAllStages) {
  for (int32_t n = 1; n <= 5; ++n) {
    for (int64_t micro_batches : {5, 7, 12}) {
      const Graph graph = testing::ChainGraph(n);
      Strategy strategy = Chain(graph, n, micro_batches);
      strategy.vertical_sync = true;
      const Program program = LowerAsynchronous(graph, strategy);
      const Program unrolled = Unroll(program, 4);
      for (int32_t s = 1; s <= n; ++s) {
        const int32_t lag = program.stages[s - 1].version_lag;
        EXPECT_EQ(lag, s - 1);
        size_t most = 0;
        const std::vector<int64_t> versions = VersionsOf(unrolled.devices[s - 1], lag, most);
        ASSERT_EQ(versions.size(), static_cast<size_t>(4 * micro_batches));
        for (int64_t t = 0; t < 4 * micro_batches; ++t)
          EXPECT_EQ(versions[static_cast<size_t>(t)], std::max<int64_t>(0, t - n + 1));
        // Every stage holds as many versions as the first.
        EXPECT_EQ(most, static_cast<size_t>(n));
        const DeviceProgram& device = program.devices[s - 1];
        EXPECT_EQ(
            device.resident - BufferBytes(MessageTypes(graph, Precision::kGraph), program, device),
            4 + 4 * (n - 1));
      }
    }
  }
}

// In any graph of stages, replicas included: with a lag the versions of a micro-batch are those of
// the stages with most in flight, without one each stage's own.
TEST(LowerAsynchronous, RandomGraphsSyncTheirVersions) {
  testing::Rng rng(53);
  int graphs = 0, lags = 0;
  for (int i = 0; graphs < 200; ++i) {
    testing::RandomCase random = testing::MakeUniformCase(rng);
    if (random.shared_devices) continue;
    ++graphs;
    SCOPED_TRACE(i);
    random.strategy.asynchronous = true;
    const Program plain = LowerAsynchronous(random.graph, random.strategy);
    random.strategy.vertical_sync = true;
    ASSERT_EQ(CheckStrategy(random.graph, random.cluster, random.strategy), absl::OkStatus());
    const Program synced = LowerAsynchronous(random.graph, random.strategy);
    int64_t most = 0;
    for (size_t s = 0; s < synced.stages.size(); ++s) {
      const Stage& stage = random.strategy.stages[s];
      if (synced.stages[s].has_backward)
        most = std::max(most, stage.schedule.in_flight / stage.micro_batch);
    }
    ASSERT_EQ(plain.devices.size(), synced.devices.size());
    for (size_t d = 0; d < synced.devices.size(); ++d) {
      const DeviceProgram& device = synced.devices[d];
      const ProgramStage& stage = synced.stages[device.body.front().action.stage.index()];
      EXPECT_EQ(device.body, plain.devices[d].body);
      EXPECT_GE(device.resident, plain.devices[d].resident);
      if (!stage.has_backward) {
        EXPECT_EQ(stage.version_lag, 0);
        continue;
      }
      lags += stage.version_lag > 0 ? 1 : 0;
      const int64_t micro_batches = random.strategy.mini_batch / stage.micro_batch;
      size_t alive = 0;
      const std::vector<int64_t> versions =
          VersionsOf(Unroll(device, random.strategy.mini_batch, 3), stage.version_lag, alive);
      ASSERT_EQ(versions.size(), static_cast<size_t>(3 * micro_batches));
      for (int64_t m = 0; m < 3 * micro_batches; ++m)
        ASSERT_EQ(versions[static_cast<size_t>(m)], std::max<int64_t>(0, m - most + 1));
      EXPECT_LE(alive, static_cast<size_t>(most));
    }
  }
  EXPECT_GT(lags, 100);
}

TEST(LowerAsynchronous, RandomGraphsRunUnrolled) {
  testing::Rng rng(31);
  int graphs = 0;
  for (int i = 0; graphs < 300; ++i) {
    testing::RandomCase random = testing::MakeUniformCase(rng);
    if (random.shared_devices) continue;
    ++graphs;
    SCOPED_TRACE(i);
    random.strategy.asynchronous = true;
    random.strategy.vertical_sync = graphs % 2 == 0;
    ASSERT_EQ(CheckStrategy(random.graph, random.cluster, random.strategy), absl::OkStatus());
    const Program program = LowerAsynchronous(random.graph, random.strategy);
    const testing::FakeRun run = testing::RunWithRandomDelays(Unroll(program, 4), rng, 20);
    ASSERT_TRUE(run.done);
    EXPECT_THAT(run.memory_left, ::testing::Each(Bytes(0)));
    const auto parsed = ParseProgram(ToText(program));
    ASSERT_EQ(parsed.status(), absl::OkStatus());
    EXPECT_EQ(ToText(*parsed), ToText(program));
    EXPECT_TRUE(parsed->asynchronous);
    // Evaluation is the same as ever.
    const auto evaluation = Lower(random.graph, random.strategy,
                                  testing::FixedCosts(5, 3, random.graph), {.training = false});
    ASSERT_EQ(evaluation.status(), absl::OkStatus());
    EXPECT_EQ(Validate(*evaluation, {}), absl::OkStatus());
    for (const ProgramStage& stage : evaluation->stages) EXPECT_EQ(stage.version_lag, 0);
  }
}

TEST(LowerAsynchronous, ValidateNamesABrokenUpdate) {
  const Graph graph = testing::ChainGraph(2);
  Strategy strategy = testing::MakeStages(graph, 4, {{{0}, {0, 1}, 2}, {{1, 2}, {2}, 2}});
  strategy.asynchronous = true;
  const Program good = LowerAsynchronous(graph, strategy);
  const auto expect = [&](auto&& change, const std::string& message) {
    Program program = good;
    change(program.devices[0].body);
    const absl::Status status = Validate(program, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  const auto find = [](std::vector<ProgramAction>& body, ActionKind kind) {
    return std::find_if(body.begin(), body.end(),
                        [&](const ProgramAction& item) { return item.action.kind == kind; });
  };
  using Body = std::vector<ProgramAction>;
  expect([&](Body& body) { find(body, ActionKind::kAllReduce)->after.clear(); },
         "device 0, AR0@0: it does not wait for B0[0,1)");
  expect([&](Body& body) { find(body, ActionKind::kOptimizerStep)->after.clear(); },
         "device 0, OS0: it does not wait for AR0@0");
  // The forward pass comes before the update.
  expect(
      [&](Body& body) {
        const auto step = find(body, ActionKind::kOptimizerStep) - body.begin();
        auto forward = step + 1;
        while (body[forward].action.kind != ActionKind::kForward) ++forward;
        std::swap(body[step], body[forward]);
        for (ProgramAction& item : body) {
          for (int32_t& before : item.after) {
            before = before == step      ? static_cast<int32_t>(forward)
                     : before == forward ? static_cast<int32_t>(step)
                                         : before;
          }
          std::sort(item.after.begin(), item.after.end());
        }
      },
      "it comes before the update of B0[0,1)");
}

TEST(LowerAsynchronous, ValidateNamesALagThatDoesNotFit) {
  const Graph graph = testing::ChainGraph(3);
  Strategy strategy = Chain(graph, 3, 4);
  strategy.vertical_sync = true;
  const Program good = LowerAsynchronous(graph, strategy);
  const auto expect = [&](std::vector<int32_t> lags, const std::string& message) {
    Program program = good;
    for (size_t s = 0; s < lags.size(); ++s) program.stages[s].version_lag = lags[s];
    const absl::Status status = Validate(program, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  expect({0, 2, 2},
         "stage 1 has 2 micro-batches in flight and a version lag of 2; with 3 in flight "
         "elsewhere, the lag must be 1");
  expect({0, 1, 0}, "stage 2 has 1 micro-batches in flight and a version lag of 0");
  expect({1, 2, 3}, "stage 0 has 3 micro-batches in flight and a version lag of 1");
  expect({0, -1, 2}, "stages[1].version_lag is negative: -1");
  Program program = good;
  program.stages[1].has_backward = false;
  EXPECT_THAT(std::string(Validate(program, {}).message()),
              HasSubstr("stages[1].version_lag is 1 where there is no backward pass"));
  strategy.asynchronous = strategy.vertical_sync = false;
  auto flushed = Lower(graph, strategy, testing::FixedCosts(100, 7, graph), {Optimizer::kSgd});
  ASSERT_EQ(flushed.status(), absl::OkStatus());
  flushed->stages[2].version_lag = 2;
  EXPECT_THAT(std::string(Validate(*flushed, {}).message()),
              HasSubstr("stages[2].version_lag is 2 where there is one version of the weights"));
}

}  // namespace
}  // namespace stagewright
