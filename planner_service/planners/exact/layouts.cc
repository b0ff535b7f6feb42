#include "planner_service/planners/exact/layouts.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>

namespace stagewright {
namespace {

// Whether the links of all routes follow the devices, each to one of the same kind.
bool LinksFollow(const Cluster& cluster, const std::vector<int32_t>& to) {
  std::vector<int32_t> image(cluster.links().size(), -1);
  std::vector<int32_t> origin(cluster.links().size(), -1);
  for (int32_t a = 0; a < cluster.size(); ++a) {
    for (int32_t b = 0; b < cluster.size(); ++b) {
      if (a == b) continue;
      const auto& from = cluster.route(DeviceId(a), DeviceId(b)).links;
      const auto& there = cluster.route(DeviceId(to[a]), DeviceId(to[b])).links;
      if (from.size() != there.size()) return false;
      for (size_t i = 0; i < from.size(); ++i) {
        const Link& x = cluster.links()[from[i]];
        const Link& y = cluster.links()[there[i]];
        if (x.latency != y.latency || x.bytes_per_second != y.bytes_per_second) return false;
        int32_t& mapped = image[from[i]];
        int32_t& back = origin[there[i]];
        if (mapped < 0 && back < 0) {
          mapped = there[i];
          back = from[i];
        }
        if (mapped != there[i] || back != from[i]) return false;
      }
    }
  }
  return true;
}

uint32_t Image(uint32_t set, const std::vector<int32_t>& to) {
  uint32_t image = 0;
  for (size_t d = 0; d < to.size(); ++d) {
    if (((set >> d) & 1) != 0) image |= uint32_t{1} << to[d];
  }
  return image;
}

class Enumerator {
 public:
  Enumerator(const Cluster& cluster, int32_t most_stages, int64_t most_replicas)
      : cluster_(cluster),
        most_stages_(most_stages),
        most_replicas_(most_replicas),
        symmetries_(Automorphisms(cluster)) {}

  std::vector<DeviceLayout> Run() {
    Extend(0);
    return std::move(layouts_);
  }

 private:
  void Extend(uint32_t used) {
    if (!sets_.empty()) layouts_.push_back(ToLayout());
    if (static_cast<int32_t>(sets_.size()) == most_stages_) return;
    for (uint32_t set = 1; set < (uint32_t{1} << cluster_.size()); ++set) {
      if ((set & used) != 0 || std::popcount(set) > most_replicas_) continue;
      sets_.push_back(set);
      if (IsFirst()) Extend(used | set);
      sets_.pop_back();
    }
  }

  // No symmetry makes the sequence smaller. A sequence with a beginning that is not first is not
  // first itself.
  bool IsFirst() const {
    return std::none_of(symmetries_.begin(), symmetries_.end(), [&](const auto& to) {
      for (uint32_t set : sets_) {
        const uint32_t image = Image(set, to);
        if (image != set) return image < set;
      }
      return false;
    });
  }

  DeviceLayout ToLayout() const {
    DeviceLayout layout;
    for (uint32_t set : sets_) {
      std::vector<DeviceId>& devices = layout.emplace_back();
      for (int32_t d = 0; d < cluster_.size(); ++d) {
        if (((set >> d) & 1) != 0) devices.push_back(DeviceId(d));
      }
      std::sort(devices.begin(), devices.end(), [&](DeviceId a, DeviceId b) {
        const Device& x = cluster_.device(a);
        const Device& y = cluster_.device(b);
        const double x_rate = cluster_.kinds()[x.kind].flops_per_second;
        const double y_rate = cluster_.kinds()[y.kind].flops_per_second;
        return std::tie(y_rate, x.kind, x.memory, a) < std::tie(x_rate, y.kind, y.memory, b);
      });
    }
    return layout;
  }

  const Cluster& cluster_;
  const int32_t most_stages_;
  const int64_t most_replicas_;
  const std::vector<std::vector<int32_t>> symmetries_;
  std::vector<uint32_t> sets_;
  std::vector<DeviceLayout> layouts_;
};

}  // namespace

std::vector<std::vector<int32_t>> Automorphisms(const Cluster& cluster) {
  std::vector<std::vector<int32_t>> result;
  std::vector<int32_t> to(cluster.size());
  std::iota(to.begin(), to.end(), 0);
  do {
    bool equal = true;
    for (int32_t d = 0; d < cluster.size() && equal; ++d) {
      const Device& x = cluster.device(DeviceId(d));
      const Device& y = cluster.device(DeviceId(to[d]));
      equal = x.kind == y.kind && x.memory == y.memory;
    }
    if (equal && LinksFollow(cluster, to)) result.push_back(to);
  } while (std::next_permutation(to.begin(), to.end()));
  return result;
}

std::vector<DeviceLayout> Layouts(const Cluster& cluster, int32_t most_stages,
                                  int64_t most_replicas) {
  return Enumerator(cluster, most_stages, most_replicas).Run();
}

}  // namespace stagewright
