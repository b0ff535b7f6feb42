#include "planner_service/registry/link_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::Register WorkerAt(const std::string& host, const std::string& kind = "cpu") {
  v1::Register message;
  message.set_worker("a");
  message.set_host_address(host);
  message.add_kinds()->set_name(kind);
  message.add_devices();
  message.set_threads_per_device(2);
  message.set_host_cores(4);
  return message;
}

LinkTable Example() {
  LinkTable table;
  Meet(WorkerAt("h"), table);
  table.links[{"a", "b"}] = {2000, 1e9, absl::FromUnixSeconds(100), ""};
  table.links[{"b", "a"}].failure = "no answer";
  table.links[{"b", "c"}] = {3000, 2e9, absl::FromUnixSeconds(200), ""};
  table.crowds[{"h", 1, 2}] = {10, 20, 0, 0, absl::FromUnixSeconds(300), ""};
  table.crowds[{"h", 3, 2}] = {11, 21, 31, 3e9, absl::FromUnixSeconds(400), "", 41, 5e9, 51};
  return table;
}

TEST(LinkTable, AWorkerThatComesBackKeepsWhatWasMeasured) {
  LinkTable table = Example();
  Meet(WorkerAt("h"), table);
  EXPECT_TRUE(table.links.contains({"a", "b"}));
  EXPECT_FALSE(table.links.contains({"b", "a"})) << "failures are worth another try";
  EXPECT_TRUE(table.links.contains({"b", "c"}));
}

TEST(LinkTable, AnotherWorkerOfThatNameKeepsNothing) {
  for (const v1::Register& worker : {WorkerAt("g"), WorkerAt("h", "h100")}) {
    LinkTable table = Example();
    Meet(worker, table);
    EXPECT_FALSE(table.links.contains({"a", "b"}));
    EXPECT_TRUE(table.links.contains({"b", "c"}));
  }
}

TEST(LinkTable, AnotherMachineAtAnAddressKeepsNoCrowds) {
  v1::Register more_cores = WorkerAt("h");
  more_cores.set_host_cores(8);
  for (const v1::Register& worker : {WorkerAt("h", "another processor"), more_cores}) {
    LinkTable table = Example();
    Meet(worker, table);
    EXPECT_THAT(table.crowds, IsEmpty());
  }
  LinkTable table = Example();
  v1::Register gpus = WorkerAt("h", "h100");
  gpus.set_worker("g");
  gpus.set_threads_per_device(0);
  Meet(gpus, table);
  Meet(WorkerAt("h"), table);
  EXPECT_THAT(table.crowds, SizeIs(2)) << "the machine's GPUs are no other machine";
}

TEST(LinkTable, WorkersThatNeverComeAgainAreForgotten) {
  LinkTable table;
  const size_t many = 2 * kMostAbsent;
  for (size_t i = 0; i < many; ++i) {
    v1::Register worker = WorkerAt(absl::StrCat("h", i));
    worker.set_worker(absl::StrCat("w", i));
    Meet(worker, table);
    const absl::Time time = absl::FromUnixSeconds(static_cast<int64_t>(i));
    table.links[{"here", worker.worker()}] = {2000, 1e9, time, ""};
    table.crowds[{worker.host_address(), 2, 1}] = {11, 21, 31, 3e9, time, ""};
  }
  Bound({"here", "w0"}, {"h0"}, table);
  EXPECT_THAT(table.workers, SizeIs(kMostAbsent + 1));
  EXPECT_THAT(table.machines, SizeIs(kMostAbsent + 1));
  EXPECT_THAT(table.links, SizeIs(kMostAbsent + 1));
  EXPECT_THAT(table.crowds, SizeIs(kMostAbsent + 1));
  EXPECT_TRUE(table.links.contains({"here", "w0"})) << "it is present";
  EXPECT_FALSE(table.links.contains({"here", "w1"}));
  EXPECT_TRUE(table.links.contains({"here", absl::StrCat("w", many - 1)}));
}

TEST(LinkTable, FindsTheLargestCrowdThatIsNotLarger) {
  const LinkTable table = Example();
  EXPECT_EQ(Find(table, {"h", 3, 2})->product, 11);
  EXPECT_EQ(Find(table, {"h", 9, 2})->product, 11);
  EXPECT_EQ(Find(table, {"h", 2, 2})->product, 10);
  EXPECT_EQ(Find(table, {"h", 3, 1}), nullptr);
  EXPECT_EQ(Find(table, {"i", 3, 2}), nullptr);
  EXPECT_EQ(Find({}, {"h", 3, 2}), nullptr);
}

TEST(LinkTable, MeasuredFiguresSurviveTheWire) {
  const LinkTable table = Example(), back = FromProto(ToProto(table));
  ASSERT_THAT(back.links, SizeIs(2));
  EXPECT_EQ(back.links.at({"a", "b"}).latency, 2000);
  EXPECT_EQ(back.links.at({"a", "b"}).bytes_per_second, 1e9);
  EXPECT_EQ(back.links.at({"a", "b"}).measured, absl::FromUnixSeconds(100));
  ASSERT_THAT(back.crowds, SizeIs(2));
  const CrowdFigure& crowd = back.crowds.at({"h", 3, 2});
  EXPECT_EQ(crowd.product, 11);
  EXPECT_EQ(crowd.copy, 21);
  EXPECT_EQ(crowd.latency, 31);
  EXPECT_EQ(crowd.bytes_per_second, 3e9);
  EXPECT_EQ(crowd.message, 41);
  EXPECT_EQ(crowd.message_bytes_per_second, 5e9);
  EXPECT_EQ(crowd.reduction, 51);
  EXPECT_EQ(crowd.measured, absl::FromUnixSeconds(400));
  EXPECT_EQ(back.workers, table.workers);
  EXPECT_EQ(back.machines, table.machines);
}

TEST(LinkTable, FiguresThatCannotBeAreLeftOut) {
  for (const double rate : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity()}) {
    v1::MeasuredLinks proto;
    proto.add_links()->set_bytes_per_second(rate);
    v1::CrowdFigure* crowd = proto.add_crowds();
    crowd->set_devices(2);
    crowd->set_product_ns(1);
    crowd->set_copy_ns(1);
    crowd->set_bytes_per_second(rate);
    EXPECT_THAT(FromProto(proto).links, IsEmpty()) << rate;
    EXPECT_THAT(FromProto(proto).crowds, IsEmpty()) << rate;
  }
}

}  // namespace
}  // namespace stagewright
