#include "planner_service/links/probes.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

using Devices = std::vector<const RegisteredDevice*>;

Probe::Participant ParticipantOf(const RegisteredDevice& device) {
  return {device.worker, device.device.name()};
}

Probe PairOf(const RegisteredDevice& a, const RegisteredDevice& b) {
  return {{ParticipantOf(a), ParticipantOf(b)}, {}};
}

Probe CrowdOf(const Devices& on_host, int32_t size) {
  Probe probe;
  for (int32_t i = 0; i < size; ++i) probe.participants.push_back(ParticipantOf(*on_host[i]));
  probe.crowd = {on_host[0]->host_address, size, on_host[0]->threads};
  return probe;
}

}  // namespace

std::string Probe::Name() const {
  if (together()) {
    return absl::StrCat(crowd.devices, " devices of ", crowd.host_address, ", ",
                        crowd.threads_per_device, " threads each");
  }
  return absl::StrCat(participants[0].worker, " - ", participants[1].worker);
}

std::vector<Probe> ProbesToDo(const std::vector<RegisteredDevice>& devices, const LinkTable& table,
                              const std::set<std::string>& again) {
  std::map<std::string, Devices> by_worker, by_host;
  for (const RegisteredDevice& device : devices) {
    if (!device.probes_links || device.threads == 0) continue;
    by_worker[device.worker].push_back(&device);
    by_host[device.host_address].push_back(&device);
  }
  std::vector<Probe> probes;
  const auto add = [&](Probe probe, bool known) {
    if (!known || again.contains(probe.Name())) probes.push_back(std::move(probe));
  };
  for (auto a = by_worker.begin(); a != by_worker.end(); ++a) {
    if (a->second.size() > 1)
      add(PairOf(*a->second[0], *a->second[1]), table.links.contains({a->first, a->first}));
    for (auto b = std::next(a); b != by_worker.end(); ++b) {
      add(PairOf(*a->second[0], *b->second[0]),
          table.links.contains({a->first, b->first}) && table.links.contains({b->first, a->first}));
    }
  }
  for (const auto& [host, on_host] : by_host) {
    const auto most = std::min(static_cast<int32_t>(on_host.size()), kMostTogether);
    if (most == 1) continue;
    // All at once is what most plans need, and one alone is what it is compared with.
    std::vector<int32_t> sizes = {1, most};
    for (int32_t size = 2; size < most; ++size) sizes.push_back(size);
    for (const int32_t size : sizes) {
      Probe probe = CrowdOf(on_host, size);
      const bool known = table.crowds.contains(probe.crowd);
      add(std::move(probe), known);
    }
  }
  return probes;
}

bool MayRun(const Probe& probe, const std::vector<RegisteredDevice>& devices) {
  std::set<std::string> workers, hosts;
  for (const Probe::Participant& participant : probe.participants)
    workers.insert(participant.worker);
  for (const RegisteredDevice& device : devices) {
    if (workers.contains(device.worker)) hosts.insert(device.host_address);
  }
  return std::none_of(devices.begin(), devices.end(), [&](const RegisteredDevice& device) {
    return !device.job.empty() && hosts.contains(device.host_address);
  });
}

}  // namespace stagewright
