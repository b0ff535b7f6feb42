#include "planner_service/planners/drl_pp/agent.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

constexpr int kLayers[] = {32, 64, Agent::kWidth};

torch::nn::Sequential Scorer(int inputs) {
  return torch::nn::Sequential(torch::nn::Linear(inputs, Agent::kWidth), torch::nn::Tanh(),
                               torch::nn::Linear(Agent::kWidth, 1));
}

// LibTorch's own initialisation draws from a generator that all threads share.
void Initialize(torch::nn::Module& module, uint64_t seed) {
  torch::NoGradGuard no_grad;
  RandomEngine random(seed);
  for (torch::Tensor& parameter : module.parameters()) {
    const double fan = static_cast<double>(parameter.size(parameter.dim() - 1));
    std::uniform_real_distribution<float> draw(static_cast<float>(-1 / std::sqrt(fan)),
                                               static_cast<float>(1 / std::sqrt(fan)));
    float* values = parameter.data_ptr<float>();
    for (int64_t i = 0; i < parameter.numel(); ++i) values[i] = draw(random);
  }
}

// An index drawn with the probabilities exp(log_probabilities).
int64_t Draw(const torch::Tensor& log_probabilities, RandomEngine& random) {
  double left = std::uniform_real_distribution<double>(0, 1)(random);
  const float* logs = log_probabilities.data_ptr<float>();
  const int64_t n = log_probabilities.numel();
  for (int64_t i = 0; i < n; ++i) {
    left -= std::exp(static_cast<double>(logs[i]));
    if (left < 0) return i;
  }
  return n - 1;
}

torch::Tensor Entropy(const torch::Tensor& log_probabilities) {
  return -(log_probabilities.exp() * log_probabilities).sum(-1);
}

torch::Tensor IndexTensor(const std::vector<int32_t>& indices) {
  return torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()));
}

}  // namespace

bool Placement::Covers(size_t partitions) const {
  const std::set<int32_t> used(partition_of.begin(), partition_of.end());
  return used.size() == partitions;
}

Agent::Agent(uint64_t seed) {
  int inputs = kNodeFeatures;
  for (int width : kLayers) {
    const std::string name = absl::StrCat("encoder", width);
    own_.push_back(register_module(
        name + "_own", torch::nn::Linear(torch::nn::LinearOptions(inputs, width / 2).bias(true))));
    neighbours_.push_back(register_module(
        name + "_neighbours",
        torch::nn::Linear(torch::nn::LinearOptions(inputs, width / 2).bias(false))));
    inputs = width;
  }
  cutter_ = register_module("cutter", torch::nn::LSTMCell(kWidth, kWidth));
  selector_ = register_module("selector", torch::nn::LSTMCell(kWidth, kWidth));
  cut_score_ = register_module("cut_score", Scorer(kWidth));
  candidate_score_ = register_module("candidate_score", Scorer(kWidth));
  pair_score_ = register_module("pair_score", Scorer(2 * kWidth));
  accelerators_ = register_parameter("accelerators", torch::zeros({kMostDevices, kWidth}));
  Initialize(*this, seed);
}

torch::Tensor Agent::Encode(const torch::Tensor& features, const torch::Tensor& adjacency) {
  torch::Tensor x = features;
  for (size_t layer = 0; layer < own_.size(); ++layer) {
    x = torch::relu(
        torch::cat({own_[layer]->forward(x), adjacency.matmul(neighbours_[layer]->forward(x))}, 1));
  }
  return x;
}

// Algorithm 1, one decision at a time.
class Agent::Partitioning {
 public:
  Partitioning(Agent& agent, const torch::Tensor& nodes, const Dag& dag, int32_t most_partitions)
      : agent_(agent),
        nodes_(nodes),
        dag_(dag),
        most_partitions_(most_partitions),
        taken_(dag.size(), false),
        // With scores of zero, a partitioning over a chain cuts every n / K groups.
        temperature_(std::log(std::max(
            1.0, static_cast<double>(dag.size()) / static_cast<double>(most_partitions)))) {
    const torch::Tensor zero = torch::zeros({1, kWidth});
    summary_ = {zero, zero};
    cut_state_ = summary_;
    members_ = summary_;
    sum_ = zero;
    for (int32_t v = 0; v < dag.size(); ++v) {
      if (dag.Predecessors(v).empty()) candidates_.insert(v);
    }
    partitions_.emplace_back();
  }

  bool Done() const {
    return static_cast<int32_t>(partitions_.size()) >= most_partitions_ || candidates_.empty();
  }

  // The last of the options is the cut, unless the partition is empty.
  bool MayCut() const { return !partitions_.back().empty(); }
  std::vector<int32_t> Candidates() const { return {candidates_.begin(), candidates_.end()}; }

  // Log-probabilities of the options.
  torch::Tensor Options() {
    const std::vector<int32_t> candidates = Candidates();
    const auto n = static_cast<int64_t>(candidates.size());
    const torch::Tensor inputs = nodes_.index_select(0, IndexTensor(candidates));
    const auto [h, c] = agent_.selector_->forward(
        inputs, std::make_tuple(members_.h.expand({n, kWidth}), members_.c.expand({n, kWidth})));
    torch::Tensor scores = agent_.candidate_score_->forward(h).squeeze(1);
    if (MayCut()) {
      const auto [cut_h, cut_c] = agent_.cutter_->forward(sum_ / static_cast<double>(dag_.size()),
                                                          std::make_tuple(summary_.h, summary_.c));
      cut_state_ = {cut_h, cut_c};
      const torch::Tensor cut = agent_.cut_score_->forward(cut_h).squeeze(1) - temperature_;
      scores = torch::cat({scores, cut});
    }
    return torch::log_softmax(scores, 0);
  }

  // `decision` is a candidate, or kCut after Options().
  void Apply(int32_t decision) {
    if (decision == kCut) {
      summary_ = cut_state_;
      members_ = {summary_.h, torch::zeros({1, kWidth})};
      sum_ = torch::zeros({1, kWidth});
      partitions_.emplace_back();
      return;
    }
    Take(decision);
  }

  std::vector<std::vector<int32_t>> Finish() {
    for (int32_t v : dag_.order()) {
      if (!taken_[v]) partitions_.back().push_back(v);
    }
    if (partitions_.back().empty()) partitions_.pop_back();
    for (auto& partition : partitions_) std::sort(partition.begin(), partition.end());
    return std::move(partitions_);
  }

 private:
  // The group and all its predecessors that no partition has.
  void Take(int32_t group) {
    for (int32_t before : dag_.Predecessors(group)) {
      if (!taken_[before]) Take(before);
    }
    taken_[group] = true;
    candidates_.erase(group);
    partitions_.back().push_back(group);
    const torch::Tensor node = nodes_.narrow(0, group, 1);
    const auto [h, c] = agent_.selector_->forward(node, std::make_tuple(members_.h, members_.c));
    members_ = {h, c};
    sum_ = sum_ + node;
    for (int32_t next : dag_.Successors(group)) {
      if (!taken_[next]) candidates_.insert(next);
    }
  }

  Agent& agent_;
  const torch::Tensor& nodes_;
  const Dag& dag_;
  const int32_t most_partitions_;
  std::vector<bool> taken_;
  double temperature_;
  std::set<int32_t> candidates_;
  std::vector<std::vector<int32_t>> partitions_;
  State summary_;    // After the partitions before this one.
  State cut_state_;  // After this partition, too.
  State members_;    // After the members of this partition.
  torch::Tensor sum_;
};

Scheme Agent::SampleScheme(const torch::Tensor& nodes, const Dag& dag, int32_t most_partitions,
                           RandomEngine& random) {
  torch::NoGradGuard no_grad;
  Partitioning partitioning(*this, nodes, dag, most_partitions);
  Scheme scheme;
  while (!partitioning.Done()) {
    const std::vector<int32_t> candidates = partitioning.Candidates();
    const torch::Tensor logs = partitioning.Options();
    const int64_t chosen = Draw(logs, random);
    const bool cut = chosen == static_cast<int64_t>(candidates.size());
    scheme.decisions.push_back(cut ? kCut : candidates[chosen]);
    scheme.log_probabilities.push_back(static_cast<double>(logs.data_ptr<float>()[chosen]));
    partitioning.Apply(scheme.decisions.back());
  }
  scheme.partitions = partitioning.Finish();
  return scheme;
}

Judged Agent::JudgeScheme(const torch::Tensor& nodes, const Dag& dag, int32_t most_partitions,
                          const Scheme& scheme) {
  Partitioning partitioning(*this, nodes, dag, most_partitions);
  std::vector<torch::Tensor> chosen, entropies;
  for (int32_t decision : scheme.decisions) {
    const std::vector<int32_t> candidates = partitioning.Candidates();
    const torch::Tensor logs = partitioning.Options();
    const auto index =
        decision == kCut
            ? static_cast<int64_t>(candidates.size())
            : std::lower_bound(candidates.begin(), candidates.end(), decision) - candidates.begin();
    chosen.push_back(logs[index]);
    entropies.push_back(Entropy(logs));
    partitioning.Apply(decision);
  }
  if (chosen.empty()) return {torch::zeros({0}), torch::zeros({})};
  return {torch::stack(chosen), torch::stack(entropies).mean()};
}

// [devices, partitions]: section 3.3.
torch::Tensor Agent::PlacementLogits(const torch::Tensor& nodes, const Scheme& scheme,
                                     int32_t devices) {
  std::vector<torch::Tensor> summaries;
  for (const std::vector<int32_t>& partition : scheme.partitions) {
    summaries.push_back(nodes.index_select(0, IndexTensor(partition)).sum(0) /
                        static_cast<double>(nodes.size(0)));
  }
  const torch::Tensor partitions = torch::stack(summaries);
  const int64_t n = partitions.size(0);
  std::vector<int32_t> embeddings;
  for (int32_t d = 0; d < devices; ++d) embeddings.push_back(d % kMostDevices);
  const torch::Tensor pairs = torch::cat({accelerators_.index_select(0, IndexTensor(embeddings))
                                              .unsqueeze(1)
                                              .expand({devices, n, kWidth}),
                                          partitions.unsqueeze(0).expand({devices, n, kWidth})},
                                         2);
  return torch::log_softmax(pair_score_->forward(pairs).squeeze(2), 1);
}

Placement Agent::SamplePlacement(const torch::Tensor& nodes, const Scheme& scheme, int32_t devices,
                                 RandomEngine& random) {
  torch::NoGradGuard no_grad;
  const torch::Tensor logs = PlacementLogits(nodes, scheme, devices);
  Placement placement;
  for (int32_t d = 0; d < devices; ++d) {
    const torch::Tensor row = logs[d].contiguous();
    const int64_t partition = Draw(row, random);
    placement.partition_of.push_back(static_cast<int32_t>(partition));
    placement.log_probabilities.push_back(static_cast<double>(row.data_ptr<float>()[partition]));
  }
  return placement;
}

Judged Agent::JudgePlacement(const torch::Tensor& nodes, const Scheme& scheme,
                             const Placement& placement) {
  const torch::Tensor logs =
      PlacementLogits(nodes, scheme, static_cast<int32_t>(placement.partition_of.size()));
  const torch::Tensor chosen =
      logs.gather(1, IndexTensor(placement.partition_of).unsqueeze(1)).squeeze(1);
  return {chosen, Entropy(logs).mean()};
}

absl::Status Agent::SaveTo(const std::string& path) {
  try {
    torch::serialize::OutputArchive archive;
    save(archive);
    archive.save_to(path);
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": the policy cannot be written: ", error.what()));
  }
  return absl::OkStatus();
}

absl::Status Agent::LoadFrom(const std::string& path) {
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(path);
    load(archive);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return absl::DataLossError(
        absl::StrCat(path, ": not a policy: ", what.substr(0, what.find('\n'))));
  }
  return absl::OkStatus();
}

}  // namespace stagewright
