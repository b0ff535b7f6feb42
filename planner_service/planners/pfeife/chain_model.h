// The model's operators in a linear order, cut into slices: what the slices cost, exchange and
// hold for one micro-batch.
//
// Slices exchange what the data dependencies between them say, so that slices of parallel branches
// do not wait for each other although they are neighbours in the order.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/models/operator_costs.h"
#include "planner_service/planners/pfeife/dependency_graph.h"
#include "planner_service/planners/pfeife/peak_memory.h"

namespace stagewright::pfeife {

// How the published planner reads its input where that differs from ours.
struct ModelRules {
  bool one_ratio = false;   // Backward times are forward times, scaled to the same sum.
  bool per_reader = false;  // A slice receives a value once for each operator that reads it.
  bool recompute = false;   // Not the published planner's: every slice runs its forward pass again.
};

class ChainModel {
 public:
  // `order` lists the operators topologically. Micro-batches have `samples` samples. What is
  // referenced outlives the model. O(operators * kinds).
  ChainModel(const OperatorCosts& costs, std::vector<int32_t> order, int64_t samples,
             ModelRules rules = {});

  int32_t size() const { return static_cast<int32_t>(order_.size()); }
  const std::vector<int32_t>& order() const { return order_; }
  int64_t samples() const { return samples_; }
  const OperatorCosts& costs() const { return *costs_; }
  bool recompute() const { return rules_.recompute; }

  // Slice s is [cuts[s], cuts[s + 1]), the first starts at 0, the last ends at size();
  // slice s runs on devices[s % devices.size()]. O(slices + values over the cuts).
  void Slices(const std::vector<int32_t>& cuts, const std::vector<int32_t>& devices,
              SliceCosts& slices) {
    Times(cuts, devices, slices);
    Messages(cuts, devices, slices);
  }
  // The parts of it: how long slices take, in O(slices), and what they exchange.
  void Times(const std::vector<int32_t>& cuts, const std::vector<int32_t>& devices,
             SliceCosts& slices) const;
  void Messages(const std::vector<int32_t>& cuts, const std::vector<int32_t>& devices,
                SliceCosts& slices);

  // What the slices hold. O(operators + values over the cuts).
  SliceMemory Memory(const std::vector<int32_t>& cuts);

  // Per micro-batch, the work shared out among these devices by their speeds, ns: no cuts are
  // faster where kinds of device differ by a factor. O(devices).
  double LeastTime(const std::vector<int32_t>& devices) const;

  // Cuts into `slices` non-empty slices of about equal time on the first kind of device, or equal
  // parameters and activations. REQUIRES: slices <= size().
  std::vector<int32_t> EvenTime(int32_t slices) const;
  std::vector<int32_t> EvenMemory(int32_t slices) const;

 private:
  struct Value {
    int32_t producer = 0;  // Position.
    double bytes = 0;
    double held = 0;                // Bytes kept if it leaves its slice.
    std::vector<int32_t> readers;   // Positions, ascending.
    std::vector<int32_t> gradient;  // Of those, the ones that send a gradient back.
  };
  // Values produced before the cut and read after it, latest producer first. Collected at the
  // first call for a cut.
  const std::vector<int32_t>& Crossing(int32_t cut);
  std::vector<int32_t> Even(const std::vector<double>& weight, int32_t slices) const;
  int32_t KindOf(int32_t device) const {
    return costs_->problem().cluster->device(DeviceId(device)).kind;
  }

  const OperatorCosts* costs_;
  std::vector<int32_t> order_;
  int64_t samples_;
  ModelRules rules_;
  std::vector<std::vector<double>> forward_, backward_;  // [kind][position]: prefix sums, ns.
  std::vector<Bytes> saved_, resident_;                  // Prefix sums.
  std::vector<Bytes> workspace_;                         // By position.
  std::vector<Value> values_;
  std::vector<std::vector<int32_t>> crossing_;
  std::vector<bool> collected_;
  struct Traffic {
    double there = 0, back = 0;
    bool gradient = false, used = false;
  };
  std::vector<Traffic> row_;  // Scratch of Slices.
};

}  // namespace stagewright::pfeife
