// What a stage between two downsets costs, mostly from sums kept for each downset.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/graph/downsets.h"
#include "planner_service/planners/piper/objective.h"

namespace stagewright {

class PiperStageCosts {
 public:
  // `sets` holds downsets of problem.dag; both must outlive this. O(sets * edges that leave one).
  PiperStageCosts(const PiperProblem& problem, const VertexSets& sets);

  // Degrees of tensor parallelism that some operator has, rising.
  const std::vector<int32_t>& degrees() const { return degrees_; }
  // Least device time of the operators of a set: no stage from I to J on n devices is faster than
  // (DeviceTime(J) - DeviceTime(I)) / n.
  double DeviceTime(int32_t set) const { return device_time_[set]; }

  struct Shape {
    int32_t degree = 0;  // Index in degrees().
    int32_t replicas = 1;
    int32_t micro_batches_in_flight = 1;  // ceil(S / d)
  };

  // Whether the stage from set `inner` to set `outer`, which holds it, fits its memory within time
  // `limit`. REQUIRES: inner is a subset of outer.
  bool Within(int32_t inner, int32_t outer, const Shape& shape, double limit) const;

  // The stage itself, with the operators that recompute where memory asks for it: the least time
  // that fits. REQUIRES: Within for some limit.
  PiperStage Build(int32_t inner, int32_t outer, const Shape& shape) const;

 private:
  // Sums over the operators of each set, for one degree.
  struct Sums {
    std::vector<int32_t> missing;  // Operators that lack the degree, and count nowhere else.
    std::vector<double> time;
    std::vector<double> parameters;
    std::vector<double> per_micro_batch, fixed;
    std::vector<double> recompute_time, recompute_per_micro_batch, recompute_fixed;
    std::vector<double> entering, leaving;  // Bytes of edges that cross the set's boundary.
    // By micro_batches_in_flight, filled when asked: with the leaner choice for every operator.
    mutable std::vector<std::vector<double>> least_bytes;
  };

  void SumDeviceTimes();
  void CollectCrossings();
  void AddDegree(int32_t degree);
  void FillLeast(const Sums& sums, int32_t degree, int32_t micro_batches_in_flight) const;
  double Crossings(int32_t inner, int32_t outer, int32_t degree, double* input) const;
  bool FitsPlain(int32_t inner, int32_t outer, const Shape& shape, double input) const;
  double MemoryFor(const Shape& shape, double input) const;
  double LeastTime(int32_t inner, int32_t outer, const Shape& shape, double input) const;
  std::vector<int32_t> Difference(int32_t inner, int32_t outer) const;
  std::vector<bool> Recomputing(const std::vector<int32_t>& operators, const Shape& shape,
                                double input, double* time) const;

  const PiperProblem& problem_;
  const VertexSets& sets_;
  std::vector<int32_t> degrees_;
  std::vector<Sums> sums_;  // By index of degree.
  std::vector<double> device_time_;
  std::vector<std::vector<double>> edge_in_, edge_out_;  // By degree and edge: bytes with sync.
  std::vector<int32_t> crossing_begin_;                  // By set, into crossing_.
  std::vector<int32_t> crossing_;                        // Edges that leave the set.
  mutable absl::flat_hash_map<uint64_t, double> least_;  // Times that took a knapsack.
};

}  // namespace stagewright
