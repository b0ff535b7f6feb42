#include "planner_service/registry/link_table.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

bool IsRate(double value) { return std::isfinite(value) && value > 0; }

std::string Describe(const v1::Register& worker) {
  std::string text = absl::StrCat(worker.host_address(), ", ", worker.devices_size(), " devices");
  for (const v1::DeviceKind& kind : worker.kinds()) absl::StrAppend(&text, ", ", kind.name());
  return text;
}

// Empty for a worker without CPU devices, which has no part in crowds.
std::string DescribeMachine(const v1::Register& worker) {
  if (worker.threads_per_device() == 0 || worker.devices().empty()) return "";
  const int kind = worker.devices(0).kind();
  if (kind < 0 || kind >= worker.kinds_size()) return "";
  return absl::StrCat(worker.kinds(kind).name(), ", ", worker.host_cores(), " cores");
}

using LastMeasured = std::map<std::string, absl::Time>;

// Those of `last` that are not present, beyond kMostAbsent.
std::set<std::string> Superfluous(const LastMeasured& last, const std::set<std::string>& present) {
  std::vector<std::pair<absl::Time, std::string>> absent;
  for (const auto& [name, time] : last) {
    if (!present.contains(name)) absent.emplace_back(time, name);
  }
  std::sort(absent.begin(), absent.end(), std::greater<>());
  std::set<std::string> names;
  for (size_t i = kMostAbsent; i < absent.size(); ++i) names.insert(absent[i].second);
  return names;
}

void Note(absl::Time time, const std::string& name, LastMeasured& last) {
  absl::Time& known = last.try_emplace(name, absl::InfinitePast()).first->second;
  known = std::max(known, time);
}

}  // namespace

void Meet(const v1::Register& worker, LinkTable& table) {
  std::string& known = table.workers[worker.worker()];
  std::string now = Describe(worker);
  const bool is_another = known != now;
  known = std::move(now);
  std::erase_if(table.links, [&](const auto& entry) {
    const auto& [ends, figure] = entry;
    const bool own = ends.first == worker.worker() || ends.second == worker.worker();
    return own && (is_another || !figure.ok());
  });
  const std::string machine = DescribeMachine(worker);
  bool is_another_machine = false;
  if (!machine.empty()) {
    std::string& known_machine = table.machines[worker.host_address()];
    is_another_machine = known_machine != machine;
    known_machine = machine;
  }
  std::erase_if(table.crowds, [&](const auto& entry) {
    return entry.first.host_address == worker.host_address() &&
           (is_another_machine || !entry.second.ok());
  });
}

void Bound(const std::set<std::string>& present_workers, const std::set<std::string>& present_hosts,
           LinkTable& table) {
  LastMeasured workers, hosts;
  for (const auto& [worker, description] : table.workers)
    Note(absl::InfinitePast(), worker, workers);
  for (const auto& [ends, figure] : table.links) {
    Note(figure.measured, ends.first, workers);
    Note(figure.measured, ends.second, workers);
  }
  for (const auto& [host, description] : table.machines) Note(absl::InfinitePast(), host, hosts);
  for (const auto& [crowd, figure] : table.crowds) Note(figure.measured, crowd.host_address, hosts);
  const std::set<std::string> old_workers = Superfluous(workers, present_workers);
  const std::set<std::string> old_hosts = Superfluous(hosts, present_hosts);
  const auto among = [](const std::set<std::string>& names) {
    return [&names](const auto& entry) { return names.contains(entry.first); };
  };
  std::erase_if(table.workers, among(old_workers));
  std::erase_if(table.machines, among(old_hosts));
  std::erase_if(table.links, [&](const auto& entry) {
    return old_workers.contains(entry.first.first) || old_workers.contains(entry.first.second);
  });
  std::erase_if(table.crowds,
                [&](const auto& entry) { return old_hosts.contains(entry.first.host_address); });
}

const CrowdFigure* Find(const LinkTable& table, const Crowd& crowd) {
  for (auto it = table.crowds.upper_bound({crowd.host_address, crowd.devices, INT32_MAX});
       it != table.crowds.begin();) {
    --it;
    if (it->first.host_address != crowd.host_address) return nullptr;
    if (it->first.threads_per_device == crowd.threads_per_device && it->second.ok())
      return &it->second;
  }
  return nullptr;
}

v1::MeasuredLinks ToProto(const LinkTable& table) {
  v1::MeasuredLinks proto;
  for (const auto& [ends, figure] : table.links) {
    v1::LinkFigure* link = proto.add_links();
    link->set_from(ends.first);
    link->set_to(ends.second);
    link->set_latency_ns(figure.latency.count());
    link->set_bytes_per_second(figure.bytes_per_second);
    if (figure.ok()) link->set_measured_seconds(absl::ToUnixSeconds(figure.measured));
    link->set_failure(figure.failure);
  }
  for (const auto& [of, figure] : table.crowds) {
    v1::CrowdFigure* crowd = proto.add_crowds();
    crowd->set_host_address(of.host_address);
    crowd->set_devices(of.devices);
    crowd->set_threads_per_device(of.threads_per_device);
    crowd->set_product_ns(figure.product.count());
    crowd->set_copy_ns(figure.copy.count());
    crowd->set_latency_ns(figure.latency.count());
    crowd->set_bytes_per_second(figure.bytes_per_second);
    if (figure.ok()) crowd->set_measured_seconds(absl::ToUnixSeconds(figure.measured));
    crowd->set_failure(figure.failure);
    crowd->set_message_ns(figure.message.count());
    crowd->set_message_bytes_per_second(figure.message_bytes_per_second);
    crowd->set_reduction_ns(figure.reduction.count());
  }
  proto.mutable_workers()->insert(table.workers.begin(), table.workers.end());
  proto.mutable_machines()->insert(table.machines.begin(), table.machines.end());
  return proto;
}

LinkTable FromProto(const v1::MeasuredLinks& proto) {
  LinkTable table;
  for (const v1::LinkFigure& link : proto.links()) {
    if (!link.failure().empty()) continue;
    if (link.latency_ns() < 0 || !IsRate(link.bytes_per_second())) continue;
    table.links[{link.from(), link.to()}] = {Nanos(link.latency_ns()), link.bytes_per_second(),
                                             absl::FromUnixSeconds(link.measured_seconds()), ""};
  }
  for (const v1::CrowdFigure& crowd : proto.crowds()) {
    const bool alone = crowd.devices() == 1;
    if (!crowd.failure().empty() || crowd.product_ns() <= 0 || crowd.copy_ns() <= 0) continue;
    if (crowd.latency_ns() < 0 || !(alone || IsRate(crowd.bytes_per_second()))) continue;
    if (crowd.message_ns() < 0 || crowd.reduction_ns() < 0) continue;
    const double rate = crowd.message_bytes_per_second();
    table.crowds[{crowd.host_address(), crowd.devices(), crowd.threads_per_device()}] = {
        Nanos(crowd.product_ns()),
        Nanos(crowd.copy_ns()),
        Nanos(crowd.latency_ns()),
        crowd.bytes_per_second(),
        absl::FromUnixSeconds(crowd.measured_seconds()),
        "",
        Nanos(crowd.message_ns()),
        IsRate(rate) ? rate : 0,
        Nanos(crowd.reduction_ns())};
  }
  table.workers.insert(proto.workers().begin(), proto.workers().end());
  table.machines.insert(proto.machines().begin(), proto.machines().end());
  return table;
}

}  // namespace stagewright
