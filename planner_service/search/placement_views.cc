#include "planner_service/search/placement_views.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/cost/node_weights.h"

namespace stagewright {
namespace {

// Routes at least this fast, relative to the fastest, join devices to a group.
constexpr double kFastLink = 0.25;
// Regular clusters of more devices are searched as they are: planners know nodes.
constexpr int32_t kMostRegular = 16;
constexpr int32_t kMostForPrefixes = 64;
// Views of all devices take a copy of all routes.
constexpr int32_t kMostForAll = 256;
constexpr size_t kMostClasses = 3;

bool EqualRoutes(const Cluster& cluster, bool within_nodes_alone) {
  // By whether both ends share a node.
  std::optional<std::pair<Nanos, double>> known[2];
  for (int32_t a = 0; a < cluster.size(); ++a) {
    for (int32_t b = 0; b < cluster.size(); ++b) {
      if (a == b) continue;
      const bool inside = cluster.devices()[a].node == cluster.devices()[b].node;
      auto& own = known[within_nodes_alone && inside ? 1 : 0];
      const Route& route = cluster.route(DeviceId(a), DeviceId(b));
      const auto key = std::make_pair(route.latency, route.bytes_per_second);
      if (own && *own != key) return false;
      own = key;
    }
  }
  return true;
}

bool EqualDevices(const Cluster& cluster) {
  const Device& first = cluster.devices()[0];
  return std::all_of(cluster.devices().begin(), cluster.devices().end(), [&](const Device& device) {
    return device.kind == first.kind && device.memory == first.memory;
  });
}

class Viewer {
 public:
  explicit Viewer(const Problem& problem) : cluster_(*problem.cluster), size_(cluster_.size()) {
    MeasureSpeed(problem);
    FindGroups();
  }

  std::vector<PlacementView> All() {
    const bool devices = EqualDevices(cluster_);
    if (size_ == 1 || (devices && EqualRoutes(cluster_, false))) return {};
    std::vector<int32_t> all(size_);
    std::iota(all.begin(), all.end(), 0);
    const bool regular = devices && EqualRoutes(cluster_, true);
    if (regular) {
      if (size_ <= kMostRegular) Add("equal", all, true, false);
      return std::move(views_);
    }
    if (groups_ == 1) known_.insert(KeyOf(all, false));  // The cluster itself.
    AddSingles();
    const std::vector<int32_t> order = Ordered(all);
    if (size_ <= kMostForAll) {
      Add("equal", all, true, false);
      Add("grouped", order, false, true);
      Add("grouped equal", order, true, true);
    }
    AddClasses(
        order, [&](int32_t d) { return speed_[kind(d)]; }, "speed");
    AddClasses(
        order, [&](int32_t d) { return static_cast<double>(cluster_.devices()[d].memory); },
        "memory");
    if (groups_ > 1) {
      std::vector<int32_t> fastest;
      for (int32_t d : order) {
        if (group_[d] == group_[order[0]]) fastest.push_back(d);
      }
      Add("fastest group", fastest, false, true);
    }
    for (int32_t count = 2; count < size_ && size_ <= kMostForPrefixes; count *= 2) {
      Add(absl::StrCat("first ", count), {order.begin(), order.begin() + count}, false, true);
    }
    return std::move(views_);
  }

 private:
  int32_t kind(int32_t d) const { return cluster_.devices()[d].kind; }

  // Samples per second of the whole model, by kind.
  void MeasureSpeed(const Problem& problem) {
    const int64_t samples = std::max<int64_t>(1, problem.mini_batch / size_);
    for (const DeviceKind& kind : cluster_.kinds()) {
      speed_.push_back(1 / (1 + TotalTime(*problem.graph, *problem.costs, kind, samples)));
    }
  }

  void FindGroups() {
    double fastest = 0;
    for (int32_t a = 0; a < size_; ++a) {
      for (int32_t b = 0; b < size_; ++b) {
        if (a != b) fastest = std::max(fastest, Rate(a, b));
      }
    }
    group_.assign(size_, -1);
    for (int32_t d = 0; d < size_; ++d) {
      if (group_[d] >= 0) continue;
      group_[d] = groups_++;
      std::vector<int32_t> reached = {d};
      while (!reached.empty()) {
        const int32_t a = reached.back();
        reached.pop_back();
        for (int32_t b = 0; b < size_; ++b) {
          if (group_[b] >= 0 || Rate(a, b) < kFastLink * fastest) continue;
          group_[b] = group_[d];
          reached.push_back(b);
        }
      }
    }
  }

  double Rate(int32_t a, int32_t b) const {
    return std::min(cluster_.route(DeviceId(a), DeviceId(b)).bytes_per_second,
                    cluster_.route(DeviceId(b), DeviceId(a)).bytes_per_second);
  }

  // The group with most speed first; in a group, the fastest devices, then those of most memory.
  std::vector<int32_t> Ordered(std::vector<int32_t> devices) const {
    std::vector<double> total(groups_, 0);
    for (int32_t d : devices) total[group_[d]] += speed_[kind(d)];
    const auto key = [&](int32_t d) {
      return std::make_tuple(-total[group_[d]], group_[d], -speed_[kind(d)],
                             -cluster_.devices()[d].memory, d);
    };
    std::sort(devices.begin(), devices.end(),
              [&](int32_t a, int32_t b) { return key(a) < key(b); });
    return devices;
  }

  void AddSingles() {
    std::map<Bytes, int32_t, std::greater<Bytes>> fastest;  // By memory.
    for (int32_t d = 0; d < size_; ++d) {
      const auto [it, added] = fastest.try_emplace(cluster_.devices()[d].memory, d);
      if (!added && speed_[kind(d)] > speed_[kind(it->second)]) it->second = d;
    }
    for (const auto& [memory, d] : fastest) {
      if (views_.size() == kMostClasses) break;
      Add(absl::StrCat("device ", d), {d}, false, false);
    }
  }

  // Devices for which `value` is at least one of its largest values.
  template <typename Value>
  void AddClasses(const std::vector<int32_t>& order, Value value, const char* what) {
    std::set<double, std::greater<double>> classes;
    for (int32_t d : order) classes.insert(value(d));
    size_t count = 0;
    for (double least : classes) {
      if (count == kMostClasses) break;
      std::vector<int32_t> chosen;
      for (int32_t d : order) {
        if (value(d) >= least) chosen.push_back(d);
      }
      Add(absl::StrCat(what, " class ", ++count), Ordered(chosen), false, true);
    }
  }

  static std::vector<int32_t> KeyOf(std::vector<int32_t> order, bool equal) {
    order.push_back(equal ? -1 : -2);
    return order;
  }

  void Add(const std::string& name, const std::vector<int32_t>& order, bool equal, bool grouped) {
    if (!known_.insert(KeyOf(order, equal)).second) return;
    ClusterData data;
    data.name = absl::StrCat(cluster_.name(), ", ", name);
    data.links = cluster_.data().links;
    std::map<int32_t, int32_t> kinds;
    for (int32_t d : order) {
      Device device = cluster_.devices()[d];
      const int32_t kind = equal ? FastestKind(order) : device.kind;
      const auto [it, added] = kinds.try_emplace(kind, static_cast<int32_t>(data.kinds.size()));
      if (added) data.kinds.push_back(cluster_.kinds()[kind]);
      device.kind = it->second;
      if (grouped && groups_ > 1) device.node = group_[d];
      data.devices.push_back(std::move(device));
      for (int32_t to : order) data.routes.push_back(cluster_.data().routes[d * size_ + to]);
    }
    if (equal) EqualLinks(data);
    absl::StatusOr<Cluster> cluster = Cluster::Create(std::move(data));
    CHECK(cluster.ok());
    views_.push_back({name, *std::move(cluster), {order.begin(), order.end()}});
  }

  int32_t FastestKind(const std::vector<int32_t>& order) const {
    int32_t best = kind(order[0]);
    for (int32_t d : order) {
      if (speed_[kind(d)] > speed_[best]) best = kind(d);
    }
    return best;
  }

  static void EqualLinks(ClusterData& data) {
    double fastest = 0;
    Nanos least = std::numeric_limits<Nanos>::max();
    for (const Link& link : data.links) {
      fastest = std::max(fastest, link.bytes_per_second);
      least = std::min(least, link.latency);
    }
    for (Link& link : data.links) {
      link.bytes_per_second = fastest;
      link.latency = least;
    }
  }

  const Cluster& cluster_;
  const int32_t size_;
  std::vector<double> speed_;   // By kind.
  std::vector<int32_t> group_;  // By device.
  int32_t groups_ = 0;
  std::set<std::vector<int32_t>> known_;
  std::vector<PlacementView> views_;
};

}  // namespace

std::vector<PlacementView> PlacementViews(const Problem& problem) { return Viewer(problem).All(); }

Strategy OnDevicesOf(const PlacementView& view, Strategy strategy) {
  for (Stage& stage : strategy.stages) {
    for (DeviceId& device : stage.devices) device = view.devices[device.index()];
  }
  for (DeviceOrder& order : strategy.orders) order.device = view.devices[order.device.index()];
  std::sort(strategy.orders.begin(), strategy.orders.end(),
            [](const DeviceOrder& a, const DeviceOrder& b) { return a.device < b.device; });
  return strategy;
}

}  // namespace stagewright
