#include "planner_service/models/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "planner_service/evaluator/evaluator.h"
#include "planner_service/simulator/model_durations.h"
#include "tests/support/clusters.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::SearchCase;
using testing::Uniform;

constexpr PassKind kF = PassKind::kForward;
constexpr PassKind kB = PassKind::kBackward;

// Two units on two devices; forward passes take 10, backward passes 20, messages 15. The second
// reads the activations of two micro-batches.
double TwoMicroBatches(LinkModel links, std::optional<ReceivePosting> posting, bool ordered) {
  const PassLanes lanes({{0, 2}, {1, 2}},
                        {{0, 0, kF},
                         {0, 1, kF},
                         {1, 0, kF},
                         {1, 0, kB},
                         {0, 0, kB},
                         {1, 1, kF},
                         {1, 1, kB},
                         {0, 1, kB}},
                        posting);
  const std::vector<TimelineCosts::LinkBytes> link = {{0, 15}};
  TimelineCosts costs;
  costs.times = {{10, 20, 0, 0}, {10, 20, 0, 0}};
  costs.messages = {{0, 1, true, {0, 15, link}, {0, 15, link}}};
  costs.rates = {1e9};
  return Timeline(lanes).Run(costs, {.links = links, .ordered = ordered});
}

TEST(TimelineTest, LinkModels) {
  // F0 to 10, message to 25, F to 35, B to 55, F1 to 65, B1 to 85, message to 100, B to 120.
  for (bool ordered : {false, true}) {
    EXPECT_EQ(TwoMicroBatches(LinkModel::kUnlimited, std::nullopt, ordered), 120);
    EXPECT_EQ(TwoMicroBatches(LinkModel::kInTurn, std::nullopt, ordered), 120);
    // The second receive is posted when the first pass has ended, the message is there at 50.
    EXPECT_EQ(TwoMicroBatches(LinkModel::kInTurn, ReceivePosting{2}, ordered), 120);
    // Posted when the pass before it has ended, at 55: F1 from 70.
    EXPECT_EQ(TwoMicroBatches(LinkModel::kInTurn, ReceivePosting{1}, ordered), 135);
  }
  EXPECT_EQ(TwoMicroBatches(LinkModel::kShared, std::nullopt, false), 120);
}

TEST(TimelineTest, MessagesOfALinkOrAChannelWaitForEachOther) {
  // Three forward passes of 1 on the first device, messages of 10 on one link, to two readers.
  const PassLanes lanes({{0, 3}, {1, 3}, {2, 3}},
                        {{0, 0, kF},
                         {0, 1, kF},
                         {0, 2, kF},
                         {1, 0, kF},
                         {1, 1, kF},
                         {1, 2, kF},
                         {2, 0, kF},
                         {2, 1, kF},
                         {2, 2, kF}},
                        std::nullopt);
  const std::vector<TimelineCosts::LinkBytes> link = {{0, 10}};
  TimelineCosts costs;
  costs.times.assign(3, {1, 0, 0, 0});
  costs.messages = {{0, 1, false, {0, 10, link}, {}}, {0, 2, false, {0, 10, link}, {}}};
  costs.rates = {1e9};
  Timeline timeline(lanes);
  EXPECT_EQ(timeline.Run(costs, {.links = LinkModel::kUnlimited}), 3 + 10 + 1);
  EXPECT_EQ(timeline.Run(costs, {.links = LinkModel::kInTurn}), 1 + 3 * 10 + 1);
  EXPECT_EQ(timeline.sent().size(), 6u);
  EXPECT_EQ(timeline.Run(costs, {.links = LinkModel::kShared}), 1 + 6 * 10 + 1);
}

TEST(TimelineTest, WithoutAnEndItNeverEnds) {
  // Each waits for what the other runs second.
  const PassLanes lanes({{0, 1}, {1, 1}}, {{0, 0, kB}, {0, 0, kF}, {1, 0, kF}, {1, 0, kB}},
                        std::nullopt);
  TimelineCosts costs;
  costs.times.assign(2, {1, 1, 0, 0});
  costs.messages = {{0, 1, true, {}, {}}};
  EXPECT_EQ(Timeline(lanes).Run(costs, {}), Timeline::kNever);
}

TEST(TimelineTest, StopsWithTheContext) {
  constexpr int32_t kMany = 1000;
  std::vector<UnitPass> passes;
  for (int32_t m = 0; m < kMany; ++m) passes.push_back({0, m, kF});
  TimelineCosts costs;
  costs.times = {{1, 1, 0, 0}};
  Timeline timeline(PassLanes({{0, kMany}}, passes, std::nullopt));
  EXPECT_EQ(timeline.Run(costs, {}), kMany);
  SearchContext cancelled;
  cancelled.Cancel();
  EXPECT_EQ(timeline.Run(costs, {.context = &cancelled}), Timeline::kNever);
}

// A program's passes, messages and updates, as the simulator times them.
struct Translated {
  std::vector<PassLanes::Unit> units;
  std::vector<UnitPass> passes;
  TimelineCosts costs;
  std::vector<std::vector<TimelineCosts::LinkBytes>> links;
};

std::optional<PassKind> KindOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return PassKind::kForward;
    case ActionKind::kBackward:
      return PassKind::kBackward;
    case ActionKind::kRecompute:
      return PassKind::kRecompute;
    default:
      return std::nullopt;
  }
}

// Behind the end of the last backward pass: when the buckets so far, and those but the last, are
// summed, and when what is updated early is.
struct Tail {
  Nanos summed = -kSecond * 1'000'000;
  Nanos before = 0;
  Nanos updated = 0;
};

Translated Translate(const Program& program, const Durations& durations, bool equal) {
  Translated out;
  std::map<std::pair<StageId, DeviceId>, int32_t> unit_of;
  std::map<std::pair<int32_t, bool>, Durations::Transfer> transfers;  // By channel and way.
  for (const DeviceProgram& device : program.devices) {
    std::map<StageId, Nanos> sums;
    std::map<StageId, Tail> tails;
    for (const ProgramAction& item : device.body) {
      const Action& action = item.action;
      if (IsSend(action.kind)) {
        Durations::Transfer transfer = durations.TransferOf(action);
        if (!equal) transfer.bytes /= action.samples.size();
        transfers.insert({{action.channel, action.kind == ActionKind::kSendGradient}, transfer});
      }
      if (action.kind == ActionKind::kAllReduce) {
        const Nanos time = durations.Of(device.device, action);
        if (!item.after_marks.empty()) {
          Tail& tail = tails[action.stage];
          const PassMark& mark = item.after_marks[0];
          const Action& pass = device.body[mark.action].action;
          const Nanos left = durations.Of(device.device, pass) -
                             durations.UntilMark(device.device, pass, mark.node);
          tail.before = tail.summed;
          tail.summed = std::max(tail.summed, -left) + time;
          continue;
        }
        for (StageId stage : program.reductions[action.channel].stages) {
          sums[stage] = std::max(sums[stage], time);
        }
      }
      if (!IsCompute(action.kind)) continue;
      const ProgramStage& stage = program.stages[action.stage.index()];
      const auto [it, added] =
          unit_of.insert({{action.stage, device.device}, static_cast<int32_t>(out.units.size())});
      if (added) {
        out.units.push_back({device.device.value(),
                             static_cast<int32_t>(program.mini_batch / stage.micro_batch),
                             equal ? 1 : stage.micro_batch});
        out.costs.times.push_back({});
        out.costs.updates.push_back(0);
      }
      const int32_t unit = it->second;
      const auto time = static_cast<double>(durations.Of(device.device, action));
      if (const auto kind = KindOf(action.kind)) {
        out.passes.push_back(
            {unit, static_cast<int32_t>(action.samples.begin / stage.micro_batch), *kind});
        out.costs.times[unit][static_cast<size_t>(*kind)] = time;
      } else if (Tail& tail = tails[action.stage]; action.channel >= 0) {
        tail.updated = std::max<Nanos>(tail.before, 0) + durations.Of(device.device, action);
      } else {
        const Nanos ready = std::max<Nanos>({tail.summed, tail.updated, 0});
        out.costs.updates[unit] = time + static_cast<double>(ready + sums[action.stage]);
      }
    }
  }
  out.costs.rates = durations.LinkRates();
  const auto way = [&](int32_t channel, bool back) {
    const auto transfer = transfers.find({channel, back});
    if (transfer == transfers.end()) return TimelineCosts::Way{};
    const auto bytes = static_cast<double>(transfer->second.bytes);
    double slowest = 0;
    std::vector<TimelineCosts::LinkBytes>& links = out.links.emplace_back();
    for (int32_t link : transfer->second.links) {
      links.push_back({link, bytes});
      slowest = std::max(slowest, bytes * 1e9 / out.costs.rates[link]);
    }
    // Simulated times are whole nanoseconds.
    return TimelineCosts::Way{static_cast<double>(transfer->second.latency) - 1, slowest, links};
  };
  for (int32_t c = 0; c < std::ssize(program.channels); ++c) {
    const Channel& channel = program.channels[c];
    if (!channel.local() && !transfers.contains({c, false})) continue;
    out.costs.messages.push_back({unit_of.at({channel.from, channel.source}),
                                  unit_of.at({channel.to, channel.target}), channel.has_gradient,
                                  way(c, false), way(c, true)});
  }
  return out;
}

// Replicas of stages whose micro-batches differ exchange pieces that a unit does not know.
bool Translatable(const Strategy& strategy, bool equal) {
  return equal || std::all_of(strategy.stages.begin(), strategy.stages.end(),
                              [](const Stage& stage) { return stage.devices.size() == 1; });
}

// Some stages recompute; where none has replicas, some devices have several stages.
Strategy Drawn(Rng& random, const SearchCase& c) {
  Strategy strategy =
      testing::RandomStrategy(random, c.graph, c.operators, c.cluster, c.problem.mini_batch);
  for (Stage& stage : strategy.stages) stage.recompute = Uniform(random, 0, 3) == 0;
  if (Translatable(strategy, false) && Uniform(random, 0, 2) == 0) {
    for (Stage& stage : strategy.stages) {
      for (DeviceId& device : stage.devices) device = DeviceId((device.value() + 1) / 2);
    }
  }
  return strategy;
}

TEST(TimelineTest, BoundsAndEstimatesTheSimulatedTime) {
  constexpr size_t kStrategies = 1000;
  Rng random(11);
  std::vector<double> errors;
  int shared = 0;
  int unequal = 0;
  while (errors.size() < kStrategies) {
    const SearchCase c(testing::RandomProfile(random, static_cast<int32_t>(Uniform(random, 2, 12))),
                       testing::RandomCluster(random, 6), 24);
    const Strategy strategy = Drawn(random, c);
    const bool equal =
        std::all_of(strategy.stages.begin(), strategy.stages.end(), [&](const Stage& stage) {
          return stage.micro_batch == strategy.stages.front().micro_batch;
        });
    if (!Translatable(strategy, equal)) continue;
    EvaluateOptions options;
    options.optimizer = c.problem.optimizer;
    options.posting = {static_cast<int32_t>(Uniform(random, 1, 6))};
    const auto evaluation = Evaluate(c.graph, c.cluster, *c.costs, strategy, options);
    if (!evaluation.ok()) continue;  // Over memory, or in need of more samples in flight.
    const auto simulated = static_cast<double>(evaluation->iteration_time);
    const auto durations =
        MakeModelDurations(c.graph, evaluation->program, c.cluster, *c.costs, c.problem.optimizer);
    const Translated step = Translate(evaluation->program, *durations, equal);
    const PassLanes lanes(step.units, step.passes, options.posting);
    Timeline timeline(lanes);
    SCOPED_TRACE(errors.size());

    const double longest_path = timeline.Run(step.costs, {.links = LinkModel::kUnlimited});
    const double bound = timeline.Run(step.costs, {.links = LinkModel::kInTurn});
    const double estimate = timeline.Run(step.costs, {.links = LinkModel::kShared});
    ASSERT_LE(longest_path, bound + 1e-6);
    ASSERT_LE(bound, simulated + 1e-6);
    errors.push_back(std::abs(estimate - simulated) / simulated);

    // Nothing of the problem takes any time now and then.
    if (bound == 0) continue;
    const double limit = bound * static_cast<double>(Uniform(random, 10, 99)) / 100;
    const double early = timeline.Run(step.costs, {.links = LinkModel::kInTurn, .limit = limit});
    ASSERT_GT(early, limit);
    ASSERT_LE(early, bound + 1e-6);
    if (step.units.size() > evaluation->program.devices.size()) ++shared;
    if (!equal) ++unequal;
  }
  EXPECT_GT(shared, 50);
  EXPECT_GT(unequal, 50);
  std::sort(errors.begin(), errors.end());
  const auto share = [&](double part) {
    return errors[static_cast<size_t>(part * static_cast<double>(kStrategies - 1))];
  };
  RecordProperty("median", std::to_string(share(0.5)));
  RecordProperty("nine_of_ten", std::to_string(share(0.9)));
  RecordProperty("worst", std::to_string(share(1)));
  EXPECT_LE(share(0.5), 0.005);
  EXPECT_LE(share(0.9), 0.07);
  EXPECT_LE(share(1), 0.40);
}

}  // namespace
}  // namespace stagewright
