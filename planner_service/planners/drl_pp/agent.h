// The policy network of DRL-PP: graph encoder, recurrent partitioner, device scheduler.
//
// This header includes LibTorch and stays within the folder.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "planner_service/planners/drl_pp/features.h"
#include "planner_service/planners/drl_pp/grouping.h"
#include "planner_service/planners/drl_pp/walk.h"

namespace stagewright {

using RandomEngine = std::mt19937_64;

// A partition scheme (algorithm 1) and the decisions that led to it, in order: groups chosen from
// the candidates of that moment, or kCut.
struct Scheme {
  std::vector<int32_t> decisions;
  std::vector<double> log_probabilities;         // By decision: when it was drawn.
  std::vector<std::vector<int32_t>> partitions;  // Groups; each closed under predecessors together
                                                 // with those before it.
};

// The partition on each accelerator.
struct Placement {
  std::vector<int32_t> partition_of;
  std::vector<double> log_probabilities;  // By accelerator.
  bool Covers(size_t partitions) const;   // No partition is without an accelerator.
};

// Mean entropy of decisions with these log-probabilities, [decisions, options].
torch::Tensor MeanEntropy(const torch::Tensor& log_probabilities);
// The log-probability of each accelerator's partition.
torch::Tensor ChosenOf(const torch::Tensor& logits, const Placement& placement);

struct Judged {
  torch::Tensor log_probabilities;  // [decisions]
  torch::Tensor entropy;            // Mean over the decisions.
};

class Agent : public torch::nn::Module {
 public:
  static constexpr int kWidth = 128;       // Width of all hidden layers.
  static constexpr int kMostDevices = 64;  // Accelerators with an embedding of their own.

  explicit Agent(uint64_t seed);

  // [groups, kWidth]
  torch::Tensor Encode(const torch::Tensor& features, const torch::Tensor& adjacency);

  // Algorithm 1: at most `most_partitions`. Without gradients.
  Scheme SampleScheme(const torch::Tensor& nodes, const Dag& dag, int32_t most_partitions,
                      RandomEngine& random);
  // The decisions of each scheme under the present weights, with gradients. All schemes are walked
  // at once, since rows of one tensor cost little more than one: the network is so small that time
  // goes into calls.
  std::vector<Judged> JudgeSchemes(const torch::Tensor& nodes, const Dag& dag,
                                   int32_t most_partitions, const std::vector<Scheme>& schemes);

  // Section 3.3: [devices, partitions], the log-probabilities of a scheme's partitions.
  torch::Tensor PlacementLogits(const torch::Tensor& nodes, const Scheme& scheme, int32_t devices);
  static Placement SamplePlacement(const torch::Tensor& logits, RandomEngine& random);

  // FAILED_PRECONDITION, DATA_LOSS or NOT_FOUND name the file.
  absl::Status SaveTo(const std::string& path);
  absl::Status LoadFrom(const std::string& path);

 private:
  struct State {
    torch::Tensor h, c;  // [rows, kWidth]
  };
  class Sampling;
  class Replay;

  std::vector<torch::nn::Linear> own_, neighbours_;  // Theta and Theta' of the three layers.
  torch::nn::LSTMCell cutter_{nullptr}, selector_{nullptr};
  torch::nn::Sequential cut_score_{nullptr}, candidate_score_{nullptr}, pair_score_{nullptr};
  torch::Tensor accelerators_;  // [kMostDevices, kWidth]
};

}  // namespace stagewright
