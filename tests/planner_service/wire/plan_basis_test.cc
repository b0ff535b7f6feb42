#include "planner_service/wire/plan_basis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/base/error_details.h"

namespace stagewright {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::PlanningProblem Problem() {
  v1::PlanningProblem problem;
  problem.set_mini_batch(16);
  problem.set_optimizer(v1::OPTIMIZER_ADAM);
  for (const char* name : {"linear_1", "relu_1", "linear_2"}) {
    v1::Node* node = problem.mutable_graph()->add_nodes();
    node->set_name(name);
    node->set_target("aten.relu.default");
    node->set_module("of people");
  }
  problem.mutable_graph()->add_inputs()->set_name("x");
  problem.mutable_graph()->add_parameters()->set_name("w");
  return problem;
}

std::vector<v1::BasisDevice> Devices() {
  std::vector<v1::BasisDevice> devices(2);
  for (int i = 0; i < 2; ++i) {
    devices[static_cast<size_t>(i)].set_name(i == 0 ? "w0/cpu0" : "w1/cpu0");
    devices[static_cast<size_t>(i)].set_kind("Fast CPU");
    devices[static_cast<size_t>(i)].set_memory_bytes(1 << 30);
  }
  return devices;
}

OperatorProfile Measured(const std::string& day, const std::string& job = "") {
  OperatorProfile profile;
  MeasuredOperator& relu = profile.devices[{"Fast CPU", "torch"}]["aten.relu.default(f32)"];
  relu.measured_on = day;
  relu.samples = {{.samples = 1, .forward = 10}};
  relu.job = job;
  return profile;
}

// Two devices, and a wire with a port of either machine at its ends.
Cluster Wired(Nanos latency, double bytes_per_second) {
  ClusterData data;
  data.name = "wired";
  data.kinds.resize(1);
  data.kinds[0].name = "Fast CPU";
  data.kinds[0].flops_per_second = data.kinds[0].memory_bytes_per_second = 1e9;
  data.devices = {{"w0/cpu0", 0, 0, kGiB}, {"w1/cpu0", 0, 1, kGiB}};
  data.links = {{"wire", latency, bytes_per_second}, {"port", 0, 5e9}};
  data.routes = {{}, {0, 1}, {1}, {}};
  return *Cluster::Create(data);
}

class PlanBasisTest : public ::testing::Test {
 protected:
  PlanBasisTest() { SetProfiles(Measured("2026-11-20"), then_); }

  // What is said when the plan is applied to these.
  std::string Change(const v1::PlanningProblem& problem, std::vector<v1::BasisDevice> devices,
                     const OperatorProfile& profile) const {
    v1::PlanBasis now = BasisOf(problem, std::move(devices));
    SetProfiles(profile, now);
    const absl::Status status = CheckBasis(then_, now);
    EXPECT_TRUE(status.ok() || absl::IsAborted(status)) << status;
    EXPECT_EQ(DetailsOf(status).reason, status.ok() ? "" : "PLAN_OUTDATED");
    return std::string(status.message());
  }
  std::string Change(const v1::PlanningProblem& problem) const {
    return Change(problem, Devices(), Measured("2026-11-20"));
  }
  std::string Change(std::vector<v1::BasisDevice> devices) const {
    return Change(Problem(), std::move(devices), Measured("2026-11-20"));
  }
  // As of a plan for the one cluster that is applied on the other.
  static std::string Change(const Cluster& then, const Cluster& now) {
    v1::PlanBasis made = BasisOf(Problem(), DevicesOf(then));
    SetLinks(then, made);
    v1::PlanBasis applied = BasisOf(Problem(), DevicesOf(now));
    SetLinks(now, applied);
    return std::string(CheckBasis(made, applied).message());
  }
  std::string Change(const OperatorProfile& profile) const {
    return Change(Problem(), Devices(), profile);
  }

  v1::PlanBasis then_ = BasisOf(Problem(), Devices());
};

TEST_F(PlanBasisTest, NothingHasChanged) {
  EXPECT_EQ(Change(Problem()), "");
  v1::PlanningProblem problem = Problem();
  problem.set_precision(v1::PRECISION_GRAPH);  // The default.
  problem.mutable_graph()->mutable_nodes(0)->set_module("renamed");
  EXPECT_EQ(Change(problem), "");
}

TEST_F(PlanBasisTest, OperatorsAreNamed) {
  v1::PlanningProblem problem = Problem();
  problem.mutable_graph()->mutable_nodes(1)->set_target("aten.gelu.default");
  EXPECT_THAT(Change(problem), HasSubstr("operator relu_1 is another"));
  problem = Problem();
  problem.mutable_graph()->mutable_nodes(2)->set_name("linear_3");
  EXPECT_THAT(Change(problem),
              AllOf(HasSubstr("operator linear_2 is gone"), HasSubstr("operator linear_3 is new")));
  problem = Problem();
  problem.mutable_graph()->mutable_parameters(0)->add_shape(7);
  EXPECT_THAT(Change(problem), HasSubstr("inputs or parameters"));
}

TEST_F(PlanBasisTest, TheQuestionCounts) {
  v1::PlanningProblem problem = Problem();
  problem.set_mini_batch(32);
  problem.set_optimizer(v1::OPTIMIZER_SGD);
  problem.set_precision(v1::PRECISION_BF16);
  EXPECT_THAT(Change(problem),
              AllOf(HasSubstr("the mini-batch is 32, it was 16"), HasSubstr("OPTIMIZER_ADAM"),
                    HasSubstr("the precision is PRECISION_BF16")));
}

TEST_F(PlanBasisTest, DevicesThatAreGoneOrOthersAreNamedAndNewOnesAreNot) {
  std::vector<v1::BasisDevice> devices = Devices();
  devices.push_back(devices.back());
  devices.back().set_name("w2/cpu0");
  EXPECT_EQ(Change(devices), "");
  devices.erase(devices.begin());
  EXPECT_THAT(Change(devices), HasSubstr("device w0/cpu0 is gone"));
  devices = Devices();
  devices[1].set_memory_bytes(1 << 20);
  EXPECT_THAT(Change(devices), HasSubstr("device w1/cpu0 has 1048576 bytes of memory"));
  devices = Devices();
  devices[1].set_kind("Slow CPU");
  EXPECT_THAT(Change(devices),
              HasSubstr("device w1/cpu0 is of kind \"Slow CPU\", it was of \"Fast CPU\""));
}

TEST_F(PlanBasisTest, LinksThatAreOthersAreNamedWithWhatTheyWere) {
  const Cluster then = Wired(kMillisecond, 1 << 30);
  EXPECT_EQ(Change(then, then), "");
  EXPECT_EQ(Change(then, Wired(1'200 * kMicrosecond, 0.9 * (1 << 30))), "");
  EXPECT_EQ(Change(then, Wired(kMillisecond, 1 << 29)),
            "the plan was made for something else: the link from w0/cpu0 to w1/cpu0 has a "
            "bandwidth of 512 MiB/s, it had 1 GiB/s");
  EXPECT_THAT(Change(then, Wired(3 * kMillisecond, 1 << 30)),
              HasSubstr("the link from w0/cpu0 to w1/cpu0 has a latency of 3 ms, it had 1 ms"));
  EXPECT_THAT(Change(then, Wired(0, 2e9)),
              HasSubstr("has a latency of 0 ns, it had 1 ms, and a bandwidth of 1.86 GiB/s"));
}

TEST_F(PlanBasisTest, LinksThatMakeNoSenseAreNoneAndAnOlderPlanHasNone) {
  const Cluster cluster = Wired(kMillisecond, 1e9);
  v1::PlanBasis basis = BasisOf(Problem(), DevicesOf(cluster));
  SetLinks(cluster, basis);
  ASSERT_EQ(basis.links_size(), 2);  // The way back has no wire.
  v1::PlanBasis odd = basis;
  odd.mutable_links(0)->set_to(0, 7);
  odd.mutable_links(0)->add_from(-1);
  odd.mutable_links(1)->set_bytes_per_second(1e300);
  EXPECT_THAT(CheckBasis(odd, basis).message(),
              AllOf(HasSubstr("from w1/cpu0 to w0/cpu0"), HasSubstr("it had 1e+300 B/s")));
  odd.clear_links();
  EXPECT_TRUE(CheckBasis(odd, basis).ok());
}

TEST_F(PlanBasisTest, NewerMeasurementsCountUnlessAJobLeftThem) {
  EXPECT_THAT(Change(Measured("2026-11-22")),
              HasSubstr("the profile of \"Fast CPU\" is another: one of 2026-11-22, it was one of "
                        "2026-11-20"));
  EXPECT_THAT(Change(OperatorProfile()), HasSubstr("is another: none, it was one of 2026-11-20"));
  SetProfiles(OperatorProfile(), then_);
  EXPECT_EQ(Change(OperatorProfile()), "");
  EXPECT_EQ(Change(Measured("2026-11-22", "jobs/7")), "");
  EXPECT_THAT(Change(Measured("2026-11-22")), HasSubstr("it was none"));
}

TEST_F(PlanBasisTest, ManyChangesAreCounted) {
  v1::PlanningProblem other;
  for (int i = 0; i < 9; ++i) other.mutable_graph()->add_nodes()->set_name(std::string(1, 'a' + i));
  EXPECT_THAT(Change(other, {}, {}), AllOf(HasSubstr("device w0/cpu0 is gone; device w1/cpu0"),
                                           HasSubstr("; and 12 more")));
}

}  // namespace
}  // namespace stagewright
