#include "planner_service/drift/step_profile.h"

#include <tuple>

#include "common/cost/measured/operator_signature.h"

namespace stagewright {
namespace {

struct Sum {
  int64_t count = 0;
  Nanos forward = 0, backward_input = 0, backward_weight = 0;
};

}  // namespace

OperatorProfile ProfileOfSteps(const Graph& graph, const Cluster& cluster, const CostModel& costs,
                               const std::vector<TimedOperator>& operators,
                               const std::map<DeviceId, ProfiledDevice>& measured,
                               const std::string& job, const std::string& day) {
  std::map<std::tuple<ProfiledDevice, std::string, int64_t>, Sum> sums;
  for (const TimedOperator& timed : operators) {
    const auto device = measured.find(timed.device);
    if (device == measured.end() || timed.samples < 1) continue;
    if (graph.node(timed.node).cost.has_value()) continue;  // It has no signature.
    const OperatorTime expected =
        costs.Time(timed.node, cluster.kind_of(timed.device), timed.samples);
    const double share = expected.backward > 0 ? static_cast<double>(expected.backward_input) /
                                                     static_cast<double>(expected.backward)
                                               : 0;
    const Nanos input(static_cast<double>(timed.backward) * share);
    Sum& sum =
        sums[{device->second, SignatureOf(graph, timed.node, costs.precision()), timed.samples}];
    ++sum.count;
    sum.forward += timed.forward;
    sum.backward_input += input;
    sum.backward_weight += timed.backward - input;
  }
  OperatorProfile profile;
  for (const auto& [key, sum] : sums) {
    const auto& [device, signature, samples] = key;
    MeasuredOperator& one = profile.devices[device][signature];
    one.measured_on = day;
    one.job = job;
    OperatorMeasurement at;
    at.samples = samples;
    at.forward = sum.forward / sum.count;
    at.backward_input = sum.backward_input / sum.count;
    at.backward_weight = sum.backward_weight / sum.count;
    at.backward = at.backward_input + at.backward_weight;
    one.samples.push_back(at);
  }
  return profile;
}

}  // namespace stagewright
