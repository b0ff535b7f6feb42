#include "planner_service/wire/plan_basis.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/error_details.h"
#include "common/base/units.h"

namespace stagewright {
namespace {

// More than these only fill the line.
constexpr size_t kMostTold = 5;
// Links this close together are as they were.
constexpr double kSameLinkRatio = 1.25;

// FNV-1a: the same in all programs, unlike absl's hashes.
class Digest {
 public:
  void Add(absl::string_view text) {
    for (const char c : text) Step(static_cast<uint8_t>(c));
    Step(0xff);  // Ends it: no text of UTF-8 has this.
  }
  void Add(int64_t number) {
    for (int shift = 0; shift < 64; shift += 8)
      Step(static_cast<uint8_t>(static_cast<uint64_t>(number) >> shift));
  }
  uint64_t value() const { return value_; }

 private:
  void Step(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }
  uint64_t value_ = 0xcbf29ce484222325u;
};

void AddOperator(const std::string& name, const Digest& digest, v1::PlanBasis& basis) {
  v1::BasisOperator* out = basis.add_operators();
  out->set_name(name);
  out->set_digest(digest.value());
}

// Without modules, which are for people.
void AddOperators(const v1::Graph& graph, v1::PlanBasis& basis) {
  for (const v1::Node& node : graph.nodes()) {
    v1::Node plain = node;
    plain.clear_module();
    Digest digest;
    digest.Add(plain.SerializeAsString());
    AddOperator(node.name(), digest, basis);
  }
  Digest rest;
  for (const v1::Input& input : graph.inputs()) rest.Add(input.SerializeAsString());
  for (const v1::Parameter& parameter : graph.parameters()) rest.Add(parameter.SerializeAsString());
  for (const v1::Graph& length : graph.lengths()) rest.Add(length.SerializeAsString());
  AddOperator("", rest, basis);
}

void AddMeasurements(const MeasuredOperators& operators, Digest& digest, std::string& newest) {
  for (const auto& [signature, measured] : operators) {
    if (!measured.job.empty()) continue;
    digest.Add(signature);
    digest.Add(measured.measured_on);
    for (const OperatorMeasurement& sample : measured.samples) {
      for (const int64_t number :
           {sample.samples, sample.forward.count(), sample.backward_input.count(),
            sample.backward_weight.count(), sample.kept.count(), sample.workspace.count()})
        digest.Add(number);
    }
    newest = std::max(newest, measured.measured_on);
  }
}

void CompareQuestions(const v1::PlanBasis& then, const v1::PlanBasis& now,
                      std::vector<std::string>& changes) {
  if (then.mini_batch() != now.mini_batch()) {
    changes.push_back(
        absl::StrCat("the mini-batch is ", now.mini_batch(), ", it was ", then.mini_batch()));
  }
  if (then.optimizer() != now.optimizer()) {
    changes.push_back(absl::StrCat("the optimizer is ", v1::Optimizer_Name(now.optimizer()),
                                   ", it was ", v1::Optimizer_Name(then.optimizer())));
  }
  if (then.precision() != now.precision()) {
    changes.push_back(absl::StrCat("the precision is ", v1::Precision_Name(now.precision()),
                                   ", it was ", v1::Precision_Name(then.precision())));
  }
}

void CompareOperators(const v1::PlanBasis& then, const v1::PlanBasis& now,
                      std::vector<std::string>& changes) {
  std::map<std::string, uint64_t> present;
  for (const v1::BasisOperator& one : now.operators()) present[one.name()] = one.digest();
  std::set<std::string> known;
  for (const v1::BasisOperator& one : then.operators()) {
    known.insert(one.name());
    const auto found = present.find(one.name());
    if (found == present.end()) {
      changes.push_back(absl::StrCat("operator ", one.name(), " is gone"));
    } else if (found->second != one.digest()) {
      changes.push_back(one.name().empty() ? "the graph's inputs or parameters are others"
                                           : absl::StrCat("operator ", one.name(), " is another"));
    }
  }
  for (const v1::BasisOperator& one : now.operators()) {
    if (!known.contains(one.name()))
      changes.push_back(absl::StrCat("operator ", one.name(), " is new"));
  }
}

void CompareDevices(const v1::PlanBasis& then, const v1::PlanBasis& now,
                    std::vector<std::string>& changes) {
  std::map<std::string, v1::BasisDevice> present;
  for (const v1::BasisDevice& device : now.devices()) present[device.name()] = device;
  for (const v1::BasisDevice& device : then.devices()) {
    const auto found = present.find(device.name());
    if (found == present.end()) {
      changes.push_back(absl::StrCat("device ", device.name(), " is gone"));
    } else if (found->second.kind() != device.kind()) {
      changes.push_back(absl::StrCat("device ", device.name(), " is of kind \"",
                                     found->second.kind(), "\", it was of \"", device.kind(),
                                     "\""));
    } else if (found->second.memory_bytes() != device.memory_bytes()) {
      changes.push_back(absl::StrCat("device ", device.name(), " has ",
                                     found->second.memory_bytes(), " bytes of memory, it had ",
                                     device.memory_bytes()));
    }
  }
}

bool Alike(double a, double b) { return a <= kSameLinkRatio * b && b <= kSameLinkRatio * a; }

std::string RateText(double bytes_per_second) {
  // No number of bytes has as many, whatever a basis says.
  if (!(bytes_per_second > 0 && bytes_per_second < 1e18))
    return absl::StrCat(bytes_per_second, " B/s");
  return absl::StrCat(FormatBytes(Bytes(static_cast<int64_t>(bytes_per_second))), "/s");
}

// What is not as it was; empty: nothing.
std::string LinkChange(const v1::BasisLink& then, const v1::BasisLink& now) {
  std::vector<std::string> changes;
  if (!Alike(static_cast<double>(then.latency_ns()), static_cast<double>(now.latency_ns()))) {
    changes.push_back(absl::StrCat("a latency of ", FormatDuration(Nanos(now.latency_ns())),
                                   ", it had ", FormatDuration(Nanos(then.latency_ns()))));
  }
  if (!Alike(then.bytes_per_second(), now.bytes_per_second())) {
    changes.push_back(absl::StrCat("a bandwidth of ", RateText(now.bytes_per_second()), ", it had ",
                                   RateText(then.bytes_per_second())));
  }
  return absl::StrJoin(changes, ", and ");
}

// By from * devices + to; null: nothing is said of that way.
std::vector<const v1::BasisLink*> WaysOf(const v1::PlanBasis& basis) {
  const auto devices = static_cast<size_t>(basis.devices_size());
  std::vector<const v1::BasisLink*> ways(devices * devices);
  for (const v1::BasisLink& link : basis.links()) {
    for (int i = 0; i < link.from_size(); ++i)
      ways[static_cast<size_t>(link.from(i)) * devices + static_cast<size_t>(link.to(i))] = &link;
  }
  return ways;
}

// `then` comes from a file that anybody may have written; `now` does not.
void CompareLinks(const v1::PlanBasis& then, const v1::PlanBasis& now,
                  std::vector<std::string>& changes) {
  const std::vector<const v1::BasisLink*> ways = WaysOf(now);
  std::map<std::string, size_t> present;
  for (const v1::BasisDevice& device : now.devices())
    present.emplace(device.name(), present.size());
  const auto find = [&](int32_t index) {
    return index < 0 || index >= then.devices_size() ? present.end()
                                                     : present.find(then.devices(index).name());
  };
  for (const v1::BasisLink& link : then.links()) {
    for (int i = 0; i < std::min(link.from_size(), link.to_size()); ++i) {
      const auto from = find(link.from(i)), to = find(link.to(i));
      if (from == present.end() || to == present.end()) continue;  // There is more to say.
      const v1::BasisLink* way = ways[from->second * present.size() + to->second];
      const std::string change = way == nullptr ? "" : LinkChange(link, *way);
      if (change.empty()) continue;
      changes.push_back(
          absl::StrCat("the link from ", from->first, " to ", to->first, " has ", change));
    }
  }
}

void CompareProfiles(const v1::PlanBasis& then, const v1::PlanBasis& now,
                     std::vector<std::string>& changes) {
  std::map<std::string, v1::BasisProfile> present;
  for (const v1::BasisProfile& profile : now.profiles()) present[profile.device_kind()] = profile;
  for (const v1::BasisProfile& profile : then.profiles()) {
    const auto found = present.find(profile.device_kind());
    // Without devices of the kind there is more to say.
    if (found == present.end() || found->second.digest() == profile.digest()) continue;
    const auto day = [](const v1::BasisProfile& known) {
      return known.digest() == 0 ? std::string("none")
                                 : absl::StrCat("one of ", known.measured_on());
    };
    changes.push_back(absl::StrCat("the profile of \"", profile.device_kind(), "\" is another: ",
                                   day(found->second), ", it was ", day(profile)));
  }
}

}  // namespace

std::vector<v1::BasisDevice> DevicesOf(const Cluster& cluster) {
  std::vector<v1::BasisDevice> devices;
  for (const Device& device : cluster.devices()) {
    v1::BasisDevice& out = devices.emplace_back();
    out.set_name(device.name);
    out.set_kind(cluster.kinds()[static_cast<size_t>(device.kind)].name);
    out.set_memory_bytes(device.memory.count());
  }
  return devices;
}

v1::PlanBasis BasisOf(const v1::PlanningProblem& problem, std::vector<v1::BasisDevice> devices) {
  v1::PlanBasis basis;
  basis.set_mini_batch(problem.mini_batch());
  basis.set_optimizer(problem.optimizer());
  basis.set_precision(problem.precision() == v1::PRECISION_UNSPECIFIED ? v1::PRECISION_GRAPH
                                                                       : problem.precision());
  AddOperators(problem.graph(), basis);
  for (v1::BasisDevice& device : devices) *basis.add_devices() = std::move(device);
  return basis;
}

void SetProfiles(const OperatorProfile& known, v1::PlanBasis& basis) {
  basis.clear_profiles();
  std::set<std::string> kinds;
  for (const v1::BasisDevice& device : basis.devices()) kinds.insert(device.kind());
  for (const std::string& kind : kinds) {
    v1::BasisProfile* out = basis.add_profiles();
    out->set_device_kind(kind);
    Digest digest;
    std::string newest;
    for (const auto& [device, operators] : known.devices) {
      if (device.kind != kind) continue;
      digest.Add(device.software);
      AddMeasurements(operators, digest, newest);
    }
    if (newest.empty()) continue;
    out->set_digest(digest.value());
    out->set_measured_on(newest);
  }
}

void SetLinks(const Cluster& cluster, v1::PlanBasis& basis) {
  basis.clear_links();
  std::map<std::pair<Nanos, double>, v1::BasisLink*> alike;
  for (int32_t from = 0; from < cluster.size(); ++from) {
    for (int32_t to = 0; to < cluster.size(); ++to) {
      if (from == to) continue;
      const Route& route = cluster.route(DeviceId(from), DeviceId(to));
      v1::BasisLink*& link = alike[{route.latency, route.bytes_per_second}];
      if (link == nullptr) link = basis.add_links();
      link->add_from(from);
      link->add_to(to);
      link->set_latency_ns(route.latency.count());
      link->set_bytes_per_second(route.bytes_per_second);
    }
  }
}

std::vector<std::string> ChangesOfCluster(const v1::PlanBasis& then, const v1::PlanBasis& now) {
  std::vector<std::string> changes;
  CompareDevices(then, now, changes);
  CompareLinks(then, now, changes);
  CompareProfiles(then, now, changes);
  return changes;
}

std::vector<std::string> ChangesOfQuestion(const v1::PlanBasis& then, const v1::PlanBasis& now) {
  std::vector<std::string> changes;
  CompareQuestions(then, now, changes);
  CompareOperators(then, now, changes);
  return changes;
}

absl::Status CheckBasis(const v1::PlanBasis& then, const v1::PlanBasis& now) {
  std::vector<std::string> changes = ChangesOfCluster(then, now);
  for (std::string& change : ChangesOfQuestion(then, now)) changes.push_back(std::move(change));
  return Outdated(std::move(changes));
}

absl::Status Outdated(std::vector<std::string> changes) {
  if (changes.empty()) return absl::OkStatus();
  const size_t more = changes.size() - std::min(changes.size(), kMostTold);
  changes.resize(changes.size() - more);
  return WithReason(absl::AbortedError(absl::StrCat(
                        "the plan was made for something else: ", absl::StrJoin(changes, "; "),
                        more == 0 ? "" : absl::StrCat("; and ", more, " more"))),
                    "PLAN_OUTDATED");
}

}  // namespace stagewright
