// Measures operators on a device of this worker.
//
// Each distinct operator (common/cost/measured/operator_signature.h) is run as a chain
// (operator_chain.h) of as many as take a millisecond forward, but no more than take a quarter of
// the memory, with as many samples as each power of two from the least that the graph takes up to
// `most_samples`; one whose work does not depend on the samples, once. Larger sizes are left out
// once one does not fit.
//
// On a CPU a chain has nine links, and before each of them 2 MiB of other memory are gone over
// (cache_walk.h), less where a pass of the graph goes over less: in a job an operator comes after
// others that had the caches of its core. The links take copies of its parameters in turns, so many
// that between two uses of one lies as much as a pass goes over, 64 MiB at most. Links that take a
// millisecond run alone.
//
// The rule: after two chains to warm up, forward and backward pass are timed until the median of
// their sum is settled (repeats.h), at most 30 times, and no longer than 0.3 seconds after the
// third time. Times are RobustMedian. Where both halves of the backward pass have something to do
// they are timed by themselves, too, and share the time of the whole in their proportion.
//
// No LibTorch in this header.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/cost/measured/operator_profile.h"
#include "common/graph/graph.h"
#include "common/training/precision.h"

namespace stagewright {

struct ProfileOptions {
  std::string torch_device = "cpu";
  Precision precision = Precision::kGraph;
  int64_t most_samples = 16;
  Bytes memory = kGiB;            // Most that the tensors of one operator may take.
  std::string day;                // MeasuredOperator::measured_on.
  std::function<bool()> stopped;  // Asked before each run of a chain; may be empty.
};

// A node that cannot be run by itself.
struct UnmeasuredOperator {
  std::string node;  // The first of its signature.
  std::string reason;
};

struct ProfiledGraph {
  MeasuredOperators operators;
  std::vector<UnmeasuredOperator> unmeasured;
};

// On the calling thread, with as many threads inside operators as jobs have (SetIntraOpThreads).
// INVALID_ARGUMENT for a graph without operators to run, a precision that it cannot have, or no
// samples; CANCELLED once `stopped`.
absl::StatusOr<ProfiledGraph> ProfileOperators(const Graph& graph, const ProfileOptions& options);

// ProfiledDevice::software of this program on a device: "stagewright 1.2.0, torch 2.13.0, 1
// thread"; `threads` are those inside an operator, 0 on a GPU.
std::string ProfiledSoftware(int threads);

}  // namespace stagewright
