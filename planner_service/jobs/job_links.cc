#include "planner_service/jobs/job_links.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace stagewright {
namespace {

struct Rates {
  Nanos latency = 0;
  double bytes_per_second = 0;
};

constexpr Rates kMemory = {30 * kMicrosecond, 5e9};
constexpr Rates kWire = {130 * kMicrosecond, 1.25e9};
// Rates up to this factor apart are one rate, measured twice.
constexpr double kSameRateRatio = 2;
constexpr size_t kMostNamed = 4;

const LinkFigure* Measured(const LinkTable& table, const RegisteredDevice& from,
                           const RegisteredDevice& to) {
  const auto it = table.links.find({from.worker, to.worker});
  return it == table.links.end() || !it->second.ok() ? nullptr : &it->second;
}

template <typename T>
T Median(std::vector<T> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

bool Alike(double a, double b) { return a <= kSameRateRatio * b && b <= kSameRateRatio * a; }

class LinkMaker {
 public:
  LinkMaker(const std::vector<RegisteredDevice>& devices, const LinkTable& table, ClusterData& data)
      : devices_(devices), table_(table), data_(data) {}

  void AddAll() {
    FindTypicalRates();
    AddPorts();
    AddWires();
    const size_t n = devices_.size();
    data_.routes.resize(n * n);
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = 0; b < n; ++b) {
        if (a != b) data_.routes[a * n + b] = RouteOf(a, b);
      }
    }
  }

 private:
  using Hosts = std::pair<int32_t, int32_t>;  // From, to.

  Hosts HostsOf(size_t a, size_t b) const { return {data_.devices[a].node, data_.devices[b].node}; }

  int32_t Add(std::string name, Rates rates) {
    data_.links.push_back({std::move(name), rates.latency, rates.bytes_per_second});
    return static_cast<int32_t>(data_.links.size()) - 1;
  }

  void FindTypicalRates() {
    std::map<Hosts, std::pair<std::vector<Nanos>, std::vector<double>>> measured;
    for (size_t a = 0; a < devices_.size(); ++a) {
      for (size_t b = 0; b < devices_.size(); ++b) {
        if (a == b) continue;
        const Hosts hosts = HostsOf(a, b);
        typical_.try_emplace(hosts, hosts.first == hosts.second ? kMemory : kWire);
        if (const LinkFigure* figure = Measured(table_, devices_[a], devices_[b])) {
          measured[hosts].first.push_back(figure->latency);
          measured[hosts].second.push_back(figure->bytes_per_second);
        }
      }
    }
    for (auto& [hosts, rates] : measured)
      typical_[hosts] = {Median(std::move(rates.first)), Median(std::move(rates.second))};
  }

  // The latency of messages on the device's machine while all of the job's devices there work.
  Nanos CrowdLatency(size_t device) const {
    const CrowdFigure* crowd = Find(table_, CrowdOf(devices_[device], devices_));
    return crowd == nullptr ? Nanos(0) : crowd->latency;
  }

  void AddPorts() {
    std::map<int32_t, int32_t> senders;  // By host.
    for (size_t i = 0; i < devices_.size(); ++i) {
      const int32_t host = data_.devices[i].node;
      const auto typical = typical_.find({host, host});
      Rates rates = typical == typical_.end() ? kMemory : typical->second;
      rates.latency = std::max(rates.latency, CrowdLatency(i));
      ports_.push_back(Add(devices_[i].QualifiedName() + "/memory", rates));
      ++senders[host];
    }
    for (size_t i = 0; i < devices_.size(); ++i) {
      const int32_t host = data_.devices[i].node;
      const CrowdFigure* crowd = Find(table_, CrowdOf(devices_[i], devices_));
      if (crowd == nullptr || crowd->bytes_per_second <= 0 || memory_.contains(host)) continue;
      if (crowd->bytes_per_second >= senders[host] * data_.links[ports_[i]].bytes_per_second)
        continue;
      memory_[host] = Add(devices_[i].host_address + "/memory", {0, crowd->bytes_per_second});
    }
  }

  // An uplink has the rate of the fastest wire that ends there.
  void AddWires() {
    std::map<int32_t, std::string> names;
    for (size_t i = 0; i < devices_.size(); ++i)
      names[data_.devices[i].node] = devices_[i].host_address;
    std::map<int32_t, double> fastest;
    for (const auto& [hosts, rates] : typical_) {
      if (hosts.first == hosts.second) continue;
      wires_[hosts] = Add(absl::StrCat(names[hosts.first], " - ", names[hosts.second]), rates);
      for (const int32_t host : {hosts.first, hosts.second})
        fastest[host] = std::max(fastest[host], rates.bytes_per_second);
    }
    for (const auto& [host, rate] : fastest)
      uplinks_[host] = Add(names[host] + "/uplink", {0, rate});
  }

  // The device's own way if it is unlike others between the same machines, or -1.
  int32_t OwnLink(size_t a, size_t b) {
    const LinkFigure* figure = Measured(table_, devices_[a], devices_[b]);
    if (figure == nullptr) return -1;
    const Rates& typical = typical_[HostsOf(a, b)];
    if (Alike(figure->bytes_per_second, typical.bytes_per_second) &&
        Alike(static_cast<double>(figure->latency), static_cast<double>(typical.latency)))
      return -1;
    const Hosts hosts = HostsOf(a, b);
    const Nanos least = hosts.first == hosts.second ? CrowdLatency(a) : Nanos(0);
    return Add(absl::StrCat(devices_[a].QualifiedName(), " - ", devices_[b].QualifiedName()),
               {std::max(figure->latency, least), figure->bytes_per_second});
  }

  std::vector<int32_t> RouteOf(size_t a, size_t b) {
    const Hosts hosts = HostsOf(a, b);
    const bool inside = hosts.first == hosts.second;
    const int32_t own = OwnLink(a, b);
    std::vector<int32_t> route = {own >= 0 ? own : inside ? ports_[a] : wires_[hosts]};
    if (inside) {
      if (const auto memory = memory_.find(hosts.first); memory != memory_.end())
        route.push_back(memory->second);
    } else {
      route.push_back(uplinks_[hosts.first]);
      route.push_back(uplinks_[hosts.second]);
    }
    return route;
  }

  const std::vector<RegisteredDevice>& devices_;
  const LinkTable& table_;
  ClusterData& data_;
  std::map<Hosts, Rates> typical_;
  std::vector<int32_t> ports_;          // By device.
  std::map<int32_t, int32_t> memory_;   // By host, where it binds.
  std::map<int32_t, int32_t> uplinks_;  // By host.
  std::map<Hosts, int32_t> wires_;
};

}  // namespace

void AddLinks(const std::vector<RegisteredDevice>& devices, const LinkTable& table,
              ClusterData& data) {
  LinkMaker(devices, table, data).AddAll();
}

std::string LinkSummary(const std::vector<RegisteredDevice>& devices, const LinkTable& table) {
  absl::Time latest = absl::InfinitePast();
  std::set<std::string> assumed;
  for (size_t a = 0; a < devices.size(); ++a) {
    for (size_t b = 0; b < devices.size(); ++b) {
      if (a == b) continue;
      if (const LinkFigure* figure = Measured(table, devices[a], devices[b])) {
        latest = std::max(latest, figure->measured);
        continue;
      }
      std::string pair =
          absl::StrCat(devices[std::min(a, b)].worker, " - ", devices[std::max(a, b)].worker);
      const auto failed = table.links.find({devices[a].worker, devices[b].worker});
      if (failed != table.links.end()) absl::StrAppend(&pair, " (", failed->second.failure, ")");
      assumed.insert(std::move(pair));
    }
  }
  if (devices.size() < 2) return "no links";
  if (latest == absl::InfinitePast() && assumed.size() > kMostNamed) return "links assumed";
  std::vector<std::string> named(assumed.begin(), assumed.end());
  if (named.size() > kMostNamed) {
    named.resize(kMostNamed);
    named.push_back(absl::StrCat(assumed.size() - kMostNamed, " more"));
  }
  const std::string pairs = absl::StrJoin(named, ", ");
  if (latest == absl::InfinitePast()) return absl::StrCat("links assumed: ", pairs);
  const std::string when = absl::FormatTime("%H:%M", latest, absl::LocalTimeZone());
  return absl::StrCat("links measured ", when, named.empty() ? "" : ", but assumed: ", pairs);
}

Crowd CrowdOf(const RegisteredDevice& device, const std::vector<RegisteredDevice>& devices) {
  const auto together =
      std::count_if(devices.begin(), devices.end(), [&](const RegisteredDevice& other) {
        return other.host_address == device.host_address && other.threads > 0;
      });
  return {device.host_address, static_cast<int32_t>(together), device.threads};
}

}  // namespace stagewright
