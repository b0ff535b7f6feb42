// A draft as a scheduling problem: who computes what for how long, who waits for whom, and what
// memory that takes. Everything is the same for every micro-batch, so the size does not depend on
// their number.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/units.h"
#include "planner_service/models/draft.h"
#include "planner_service/models/operator_costs.h"

namespace stagewright {

struct TaskGraph {
  // One replica of one stage. Per micro-batch it runs a forward pass and, with a backward pass,
  // that one too, whole or as two halves.
  struct Unit {
    int32_t stage = 0;
    int32_t replica = 0;
    int32_t device = 0;
    bool has_backward = true;
    bool recompute = false;
    bool sends_gradients = false;  // To a unit that it reads from.
    Nanos forward = 0;
    Nanos backward = 0;      // Both halves, and what is recomputed.
    Nanos input = 0;         // The input half alone, and what is recomputed.
    Bytes kept = 0;          // From the forward pass to the end of the backward pass.
    Nanos tail = 0;          // What sums and updates have left after the last backward pass.
    int32_t out_begin = 0;   // Range of `links` that leave it.
    int32_t in_begin = 0;    // Range of `links_in` that enter it.
    Nanos longest_in = 0;    // The longest message that a forward pass waits for.
    Nanos longest_back = 0;  // The longest message that a backward pass waits for.

    // Whether splitting the backward pass helps somebody.
    bool splits() const { return sends_gradients && input < backward; }
    // Time of the backward pass as far as others wait for it.
    Nanos BackwardTime(bool split) const { return split && splits() ? input : backward; }
  };
  // A message from one unit to another for every micro-batch, and its gradient back.
  struct Link {
    int32_t from = 0;
    int32_t to = 0;
    bool gradient = false;
    bool local = false;                        // Same device: no message.
    Nanos there_latency = 0, there_bytes = 0;  // Time of the two parts of a transfer alone.
    Nanos back_latency = 0, back_bytes = 0;
    Bytes there_size = 0, back_size = 0;
    const Route* there_route = nullptr;
    const Route* back_route = nullptr;
  };
  // Gradients of a stage that its replicas sum.
  struct Sum {
    int32_t stage = 0;
    std::vector<int32_t> devices;
    Nanos time = 0;     // All its buckets (gradient_buckets.h).
    Nanos exposed = 0;  // What is left of it after the last backward pass, if nothing delays it.
    Nanos last = 0;     // The last bucket.
  };
  struct Update {
    int32_t stage = 0;
    Nanos time = 0;
    Nanos early = 0;  // The part that runs beside the last bucket's sum.
    Nanos last = 0;   // Sum::last.
  };

  int32_t devices = 0;  // Devices of the cluster.
  int32_t micro_batches = 0;
  std::vector<Unit> units;                          // By stage and replica.
  std::vector<Link> links;                          // By `from`.
  std::vector<int32_t> links_in;                    // Indices of `links`, by `to`.
  std::vector<std::vector<int32_t>> device_units;   // By device.
  std::vector<std::vector<Update>> device_updates;  // By device, in the order they run.
  std::vector<Sum> sums;                            // In the order they run.
  std::vector<Bytes> memory;                        // By device: left for `Unit::kept`.
  std::span<const stagewright::Link> cluster_links;

  int32_t out_end(int32_t unit) const { return End(unit, &Unit::out_begin, links.size()); }
  // What a message takes on one link of its route that is free; `slowest`, if that is the slowest.
  Nanos TimeOn(int32_t link, const Route& route, Bytes bytes, Nanos slowest) const {
    const double rate = cluster_links[link].bytes_per_second;
    return rate == route.bytes_per_second ? slowest : TransferTime(bytes, rate);
  }
  static Nanos TransferTime(Bytes bytes, double bytes_per_second) {
    return static_cast<Nanos>(std::ceil(static_cast<double>(bytes) * 1e9 / bytes_per_second));
  }
  int32_t in_end(int32_t unit) const { return End(unit, &Unit::in_begin, links_in.size()); }

 private:
  int32_t End(int32_t unit, int32_t Unit::*begin, size_t size) const {
    return unit + 1 < static_cast<int32_t>(units.size()) ? units[unit + 1].*begin
                                                         : static_cast<int32_t>(size);
  }
};

// About what a step takes, ns: the busiest device's passes and an update, or the longest way of one
// micro-batch there and back behind its other passes. LeastTimes::step is less. O(units + links).
double Promise(const TaskGraph& graph);

// `memory_share` of each device's memory may be used. O(operators + reads + links).
// REQUIRES: SortStages(draft) succeeded, and no stage has more devices than its micro-batch has
// samples.
TaskGraph MakeTaskGraph(const OperatorCosts& costs, const Draft& draft, double memory_share);

}  // namespace stagewright
