// A fluid model of links that transfers share equally (processor sharing): the simulator's only
// source of transfer end times.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/units.h"

namespace stagewright {

// Flows are named by dense ids chosen by the caller. A flow moves at the smallest, over its links,
// of rate / number of flows on the link. Not thread-safe.
class LinkShares {
 public:
  struct Change {
    int32_t flow;
    uint32_t version;
    Nanos finish;
  };

  // `rates` in bytes per second, positive.
  LinkShares(std::vector<double> rates, int32_t num_flows);

  // REQUIRES: the flow is idle, `links` is not empty and outlives the flow, bytes > 0.
  void Begin(int32_t flow, std::span<const int32_t> links, Bytes bytes);
  // REQUIRES: the flow is active.
  void End(int32_t flow);

  // Brings rates up to date after any number of Begin and End at time `now`, which never goes
  // back. Returns the flows whose finish changed; an earlier finish of theirs is void. The result
  // is valid until the next call. O(flows on the links that changed).
  std::span<const Change> Settle(Nanos now);

  bool active(int32_t flow) const { return !flows_[flow].links.empty(); }
  // Grows with every change of the flow's finish.
  uint32_t version(int32_t flow) const { return flows_[flow].version; }

 private:
  struct Flow {
    std::span<const int32_t> links;  // Empty: idle.
    double remaining = 0;            // Bytes at `updated`.
    double rate = 0;                 // Bytes per second since `updated`; 0: not yet moving.
    Nanos updated = 0;
    uint32_t version = 0;
    bool marked = false;
  };
  struct Link {
    double rate = 0;  // Bytes per second.
    std::vector<int32_t> flows;
    bool dirty = false;
  };
  void Touch(std::span<const int32_t> links);
  void Refresh(int32_t flow, Nanos now);

  std::vector<Flow> flows_;
  std::vector<Link> links_;
  std::vector<int32_t> dirty_;
  std::vector<int32_t> affected_;
  std::vector<Change> changes_;
};

}  // namespace stagewright
