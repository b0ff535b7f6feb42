// Which devices a stage may take: DAPPLE's three placement policies (section IV-B).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/ids.h"
#include "common/topology/cluster.h"

namespace stagewright::dapple {

enum class Policy {
  kFreshFirst,    // Nodes of which nothing is used, one after the other.
  kAppendFirst,   // Nodes of which something is used.
  kScatterFirst,  // One device in turn from each node that is used, or from all if these have too
                  // few left.
};

// A number for each occupancy (how many devices of each node are used; they are taken in order) and
// each device set that the policies lead to, so that searches compare integers.
class Placements {
 public:
  explicit Placements(const Cluster& cluster);
  // Nodes of these sizes with devices numbered through.
  explicit Placements(const std::vector<int32_t>& node_sizes);

  struct Choice {
    int32_t devices = 0;    // A device set.
    int32_t occupancy = 0;  // After it.
  };
  // The different choices for `count` more devices, by policy. Empty only if there are too few.
  // Amortised O(1); the reference lasts until the next call.
  const std::vector<Choice>& Next(int32_t occupancy, int32_t count);
  // The choice of one policy; false if it has none.
  bool Choose(int32_t occupancy, int32_t count, Policy policy, Choice& choice);

  static constexpr int32_t kEmpty = 0;  // The occupancy of an unused cluster.
  int32_t Used(int32_t occupancy) const { return total_[occupancy]; }
  int32_t size() const { return devices_; }
  // Ascending.
  const std::vector<DeviceId>& Devices(int32_t set) const { return sets_[set]; }

 private:
  int32_t InternOccupancy(std::vector<int32_t> used);
  int32_t InternSet(std::vector<DeviceId> devices);

  std::vector<std::vector<DeviceId>> nodes_;
  int32_t devices_ = 0;
  std::vector<std::vector<int32_t>> occupancies_;
  std::vector<int32_t> total_;
  std::map<std::vector<int32_t>, int32_t> occupancy_ids_;
  std::vector<std::vector<DeviceId>> sets_;
  std::map<std::vector<DeviceId>, int32_t> set_ids_;
  std::map<std::pair<int32_t, int32_t>, std::vector<Choice>> next_;
};

}  // namespace stagewright::dapple
