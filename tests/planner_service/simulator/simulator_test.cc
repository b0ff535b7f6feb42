#include "planner_service/simulator/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Times by stage and kind; every transfer of `bytes` over the links of its channel.
class TableDurations : public Durations {
 public:
  Nanos Of(DeviceId device, const Action& action) const override {
    auto it = times.find({device.value(), action.kind});
    return it == times.end() ? 0 : it->second;
  }
  Nanos UntilMark(DeviceId, const Action&, int32_t node) const override { return marks.at(node); }
  Transfer TransferOf(const Action& send) const override {
    return {latency, bytes, links[send.channel]};
  }
  std::vector<double> LinkRates() const override { return rates; }

  std::map<std::pair<int32_t, ActionKind>, Nanos> times;
  std::map<int32_t, Nanos> marks;
  Nanos latency = 0;
  Bytes bytes = 0;
  std::vector<std::vector<int32_t>> links;  // By channel.
  std::vector<double> rates;
};

struct Item {
  std::string action;
  std::vector<int32_t> after = {};
  Bytes acquire = 0;
  Bytes release = 0;
};

// A program of devices 0, 1, ... with the given bodies; channel c leads from ends[c].first to
// ends[c].second.
Program MakeProgram(const std::vector<std::vector<Item>>& bodies,
                    const std::vector<std::pair<int32_t, int32_t>>& ends = {}) {
  Program program;
  for (size_t d = 0; d < bodies.size(); ++d) {
    const auto id = static_cast<int64_t>(d);
    ProgramStage stage;
    stage.devices = {DeviceId(id)};
    program.stages.push_back(stage);
    DeviceProgram device;
    device.device = DeviceId(id);
    for (const Item& item : bodies[d]) {
      device.body.push_back(
          {ParseAction(item.action).value(), item.after, item.acquire, item.release});
    }
    program.devices.push_back(std::move(device));
  }
  for (const auto& [from, to] : ends) {
    Channel channel;
    channel.from = StageId(from);
    channel.to = StageId(to);
    channel.source = DeviceId(from);
    channel.target = DeviceId(to);
    program.channels.push_back(channel);
  }
  return program;
}

std::vector<std::string> Describe(const std::vector<TraceEvent>& events) {
  std::vector<std::string> texts;
  for (const TraceEvent& event : events) {
    texts.push_back(absl::StrCat(event.device.value(), " ", ToString(event.action), " ",
                                 event.start, "-", event.end));
  }
  return texts;
}

Simulation Timed(const Program& program, const Durations& durations) {
  auto simulation = Simulate(program, durations, {.timeline = true});
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return *simulation;
}

Program Handover() {
  return MakeProgram({{{"F0[0,1)"}, {"SA0[0,1)@0", {0}}}, {{"RA1[0,1)@0"}, {"F1[0,1)", {0}}}},
                     {{0, 1}});
}

TEST(SimulatorTest, ATransferTakesLatencyAndBytes) {
  TableDurations durations;
  durations.times = {{{0, ActionKind::kForward}, 10}, {{1, ActionKind::kForward}, 20}};
  durations.latency = 5;
  durations.bytes = 100;
  durations.links = {{0}};
  durations.rates = {1e9};
  const Simulation simulation = Timed(Handover(), durations);
  EXPECT_EQ(simulation.step_time, 135);
  EXPECT_THAT(Describe(simulation.timeline),
              ElementsAre("0 F0[0,1) 0-10", "1 RA1[0,1)@0 0-115", "0 SA0[0,1)@0 10-115",
                          "1 F1[0,1) 115-135"));
  EXPECT_THAT(Describe(simulation.critical_path),
              ElementsAre("0 F0[0,1) 0-10", "0 SA0[0,1)@0 10-115", "1 F1[0,1) 115-135"));
  ASSERT_EQ(simulation.devices.size(), 2u);
  EXPECT_EQ(simulation.devices[0].busy, 10);
  EXPECT_EQ(simulation.devices[1].busy, 20);
}

TEST(SimulatorTest, AControlMessageTakesLatencyOnly) {
  TableDurations durations;
  durations.times = {{{0, ActionKind::kForward}, 10}, {{1, ActionKind::kForward}, 20}};
  durations.latency = 5;
  durations.links = {{0}};
  durations.rates = {1};
  EXPECT_EQ(Timed(Handover(), durations).step_time, 35);
}

// Two buckets; the second sum starts when the first is done, before the pass ends.
TEST(SimulatorTest, SumsStartAtTheMarksOfABackwardPass) {
  Program program = MakeProgram({{{"B0[0,1)"}, {"AR0@0"}, {"AR0@1"}, {"OS0", {1, 2}}}});
  program.reductions.assign(2, {{}, {DeviceId(0)}, 8, {StageId(0)}});
  program.devices[0].body[1].after_marks = {{0, 2}};
  program.devices[0].body[2].after_marks = {{0, 1}};
  TableDurations durations;
  durations.times = {{{0, ActionKind::kBackward}, 50},
                     {{0, ActionKind::kAllReduce}, 25},
                     {{0, ActionKind::kOptimizerStep}, 3}};
  durations.marks = {{2, 10}, {1, 30}};
  const Simulation simulation = Timed(program, durations);
  EXPECT_THAT(Describe(simulation.timeline),
              ElementsAre("0 B0[0,1) 0-50", "0 AR0@0 10-35", "0 AR0@1 35-60", "0 OS0 60-63"));
  EXPECT_THAT(Describe(simulation.critical_path),
              ElementsAre("0 B0[0,1) 0-10", "0 AR0@0 10-35", "0 AR0@1 35-60", "0 OS0 60-63"));
  EXPECT_EQ(simulation.devices[0].busy, 53);
  durations.marks = {{2, 0}, {1, 50}};
  EXPECT_EQ(Timed(program, durations).step_time, 78) << "a mark at the end is the end";
}

TEST(SimulatorTest, ASendWaitsForItsReceive) {
  // Device 1 posts its receive only after a first forward of its own.
  const Program program = MakeProgram(
      {{{"F0[0,1)"}, {"SA0[0,1)@0", {0}}}, {{"F1[0,1)"}, {"RA1[0,1)@0", {0}}, {"F1[1,2)", {1}}}},
      {{0, 1}});
  TableDurations durations;
  durations.times = {{{0, ActionKind::kForward}, 10}, {{1, ActionKind::kForward}, 50}};
  durations.latency = 7;
  durations.links = {{}};
  const Simulation simulation = Timed(program, durations);
  EXPECT_EQ(simulation.step_time, 107);
  EXPECT_THAT(Describe(simulation.critical_path),
              ElementsAre("1 F1[0,1) 0-50", "1 RA1[0,1)@0 50-57", "1 F1[1,2) 57-107"));
}

TEST(SimulatorTest, TransfersShareALink) {
  // Devices 0 and 1 send to device 2 over a common link; 1 starts when 0 has sent half.
  const Program program = MakeProgram({{{"F0[0,1)"}, {"SA0[0,1)@0", {0}}},
                                       {{"F1[0,1)"}, {"SA1[0,1)@1", {0}}},
                                       {{"RA2[0,1)@0"}, {"RA2[0,1)@1"}, {"F2[0,1)", {0, 1}}}},
                                      {{0, 2}, {1, 2}});
  TableDurations durations;
  durations.times = {{{0, ActionKind::kForward}, 0}, {{1, ActionKind::kForward}, 500}};
  durations.bytes = 1000;
  durations.links = {{0}, {0}};
  durations.rates = {1e9};
  const Simulation simulation = Timed(program, durations);
  // 500 alone, 1000 together (500 bytes each), 500 alone.
  EXPECT_THAT(
      Describe(simulation.timeline),
      ElementsAre("0 F0[0,1) 0-0", "0 SA0[0,1)@0 0-1500", "1 F1[0,1) 0-500", "2 RA2[0,1)@0 0-1500",
                  "2 RA2[0,1)@1 0-2000", "1 SA1[0,1)@1 500-2000", "2 F2[0,1) 2000-2000"));
}

TEST(SimulatorTest, AnAllReduceWaitsForAllAndEndsForAll) {
  Program program = MakeProgram(
      {{{"B0[0,1)"}, {"AR0@0", {0}}, {"OS0", {1}}}, {{"B1[0,1)"}, {"AR1@0", {0}}, {"OS1", {1}}}});
  Reduction reduction;
  reduction.devices = {DeviceId(0), DeviceId(1)};
  program.reductions = {reduction};
  TableDurations durations;
  durations.times = {{{0, ActionKind::kBackward}, 10},
                     {{1, ActionKind::kBackward}, 30},
                     {{0, ActionKind::kAllReduce}, 5},
                     {{1, ActionKind::kAllReduce}, 5},
                     {{0, ActionKind::kOptimizerStep}, 2}};
  const Simulation simulation = Timed(program, durations);
  EXPECT_THAT(Describe(simulation.timeline),
              ElementsAre("0 B0[0,1) 0-10", "1 B1[0,1) 0-30", "0 AR0@0 10-35", "1 AR1@0 30-35",
                          "0 OS0 35-37", "1 OS1 35-35"));
  EXPECT_THAT(Describe(simulation.critical_path),
              ElementsAre("1 B1[0,1) 0-30", "1 AR1@0 30-35", "0 OS0 35-37"));
  EXPECT_EQ(simulation.devices[0].busy, 12);
}

TEST(SimulatorTest, PeakMemoryHasResidentBytesAndRealOverlap) {
  // The received tensor arrives while the first forward still holds its own.
  Program program =
      MakeProgram({{{"F0[0,1)"}, {"SA0[0,1)@0", {0}}},
                   {{"F1[4,5)", {}, 10, 10}, {"RA1[0,1)@0", {}, 7, 0}, {"F1[0,1)", {1}, 0, 7}}},
                  {{0, 1}});
  program.devices[1].resident = 100;
  TableDurations durations;
  durations.times = {{{1, ActionKind::kForward}, 50}};
  durations.links = {{}};
  EXPECT_EQ(Timed(program, durations).devices[1].peak_memory, 117);
  // Posted after the forward, they never meet: ends come before starts of the same moment.
  program.devices[1].body[1].after = {0};
  EXPECT_EQ(Timed(program, durations).devices[1].peak_memory, 110);
}

TEST(SimulatorTest, ADeadlockIsReportedWithTheGrid) {
  const Program program = MakeProgram({{{"RA0[0,1)@1"}, {"F0[0,1)", {0}}, {"SA0[0,1)@0", {1}}},
                                       {{"RA1[0,1)@0"}, {"F1[0,1)", {0}}, {"SA1[0,1)@1", {1}}}},
                                      {{0, 1}, {1, 0}});
  TableDurations durations;
  durations.links = {{}, {}};
  const auto simulation = Simulate(program, durations, {});
  EXPECT_EQ(simulation.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(simulation.status().message()),
              AllOf(HasSubstr("deadlock"), HasSubstr("device 0 waits at RA0[0,1)@1"),
                    HasSubstr("device 1 waits at RA1[0,1)@0"), HasSubstr("F0")));
}

TEST(SimulatorTest, NothingTakesNoTime) {
  const Simulation simulation = Timed(Program{}, TableDurations{});
  EXPECT_EQ(simulation.step_time, 0);
  EXPECT_TRUE(simulation.critical_path.empty());
}

}  // namespace
}  // namespace stagewright
