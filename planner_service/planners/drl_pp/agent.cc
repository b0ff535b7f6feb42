#include "planner_service/planners/drl_pp/agent.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

torch::Tensor IndexTensor(const std::vector<int32_t>& indices) {
  return torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()));
}

// With scores of zero, a partitioning over a chain cuts every n / K groups.
double Temperature(const Dag& dag, int32_t most_partitions) {
  return std::log(
      std::max(1.0, static_cast<double>(dag.size()) / static_cast<double>(most_partitions)));
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
class Agent::Sampling {
 public:
  Sampling(Agent& agent, const torch::Tensor& nodes, const Dag& dag, int32_t most_partitions)
      : agent_(agent),
        nodes_(nodes),
        groups_(dag.size()),
        temperature_(Temperature(dag, most_partitions)),
        walk_(dag, most_partitions) {
    sum_ = torch::zeros({1, kWidth});
    summary_ = cut_state_ = members_ = {sum_, sum_};
  }

  Walk& walk() { return walk_; }

  // Log-probabilities of the candidates and, where the partition may be cut, of that.
  torch::Tensor Options() {
    const std::vector<int32_t> candidates = walk_.Candidates();
    const auto n = static_cast<int64_t>(candidates.size());
    const torch::Tensor inputs = nodes_.index_select(0, IndexTensor(candidates));
    const auto [h, c] = agent_.selector_->forward(
        inputs, std::make_tuple(members_.h.expand({n, kWidth}), members_.c.expand({n, kWidth})));
    torch::Tensor scores = agent_.candidate_score_->forward(h).squeeze(1);
    if (walk_.MayCut()) {
      const auto [cut_h, cut_c] =
          agent_.cutter_->forward(sum_ / groups_, std::make_tuple(summary_.h, summary_.c));
      cut_state_ = {cut_h, cut_c};
      const torch::Tensor cut = agent_.cut_score_->forward(cut_h).squeeze(1) - temperature_;
      scores = torch::cat({scores, cut});
    }
    return torch::log_softmax(scores, 0);
  }

  // `decision` is a candidate, or kCut after Options().
  void Apply(int32_t decision) {
    for (const int32_t group : walk_.Apply(decision)) {
      const torch::Tensor node = nodes_.narrow(0, group, 1);
      const auto [h, c] = agent_.selector_->forward(node, std::make_tuple(members_.h, members_.c));
      members_ = {h, c};
      sum_ = sum_ + node;
    }
    if (decision != kCut) return;
    summary_ = cut_state_;
    sum_ = torch::zeros({1, kWidth});
    members_ = {summary_.h, sum_};
  }

 private:
  Agent& agent_;
  const torch::Tensor& nodes_;
  const double groups_;
  const double temperature_;
  Walk walk_;
  State summary_;    // After the partitions before this one.
  State cut_state_;  // After this partition, too.
  State members_;    // After the members of this partition.
  torch::Tensor sum_;
};

// The walks of several schemes, whose decisions are known. What the network is after each group
// that joins and each cut needs the state before it, a row per scheme; the options of all decisions
// are then scored in one go.
class Agent::Replay {
 public:
  Replay(Agent& agent, const torch::Tensor& nodes, const Dag& dag, int32_t most_partitions,
         const std::vector<Scheme>& schemes)
      : agent_(agent),
        nodes_(nodes),
        groups_(dag.size()),
        temperature_(Temperature(dag, most_partitions)),
        rows_(static_cast<int64_t>(schemes.size())) {
    for (const Scheme& scheme : schemes) Follow(scheme, Walk(dag, most_partitions));
  }

  std::vector<Judged> Judge() {
    if (decisions_.empty()) {
      return std::vector<Judged>(rows_, {torch::zeros({0}), torch::zeros({})});
    }
    Advance();
    const auto decisions = static_cast<int64_t>(decisions_.size());
    const torch::Tensor logs = torch::log_softmax(Scores(), 1);
    std::vector<int64_t> chosen;
    for (const Decision& decision : decisions_) chosen.push_back(decision.chosen);
    const torch::Tensor taken =
        logs.gather(1, torch::tensor(chosen).view({decisions, 1})).squeeze(1);
    std::vector<Judged> judged;
    int64_t begin = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      int64_t end = begin;
      while (end < decisions && decisions_[end].row == row) ++end;
      judged.push_back(
          {taken.narrow(0, begin, end - begin),
           end > begin ? MeanEntropy(logs.narrow(0, begin, end - begin)) : torch::zeros({})});
      begin = end;
    }
    return judged;
  }

 private:
  struct Decision {
    int64_t row;      // The scheme.
    int64_t event;    // It is made after so many of the scheme's events.
    int64_t options;  // Candidates, and a cut if it may be.
    int64_t chosen;   // Among the options.
  };

  // What all states are after as many events.
  struct States {
    State members, summary;
    torch::Tensor sum;
  };

  void Follow(const Scheme& scheme, Walk walk) {
    const auto row = static_cast<int64_t>(events_.size());
    std::vector<int32_t>& events = events_.emplace_back();
    for (const int32_t decision : scheme.decisions) {
      const std::vector<int32_t> candidates = walk.Candidates();
      const auto event = static_cast<int64_t>(events.size());
      const auto n = static_cast<int64_t>(candidates.size());
      const auto index = static_cast<int64_t>(decisions_.size());
      for (int64_t i = 0; i < n; ++i) {
        candidates_.push_back(candidates[i]);
        candidate_states_.push_back(event * rows_ + row);
        candidate_decisions_.push_back(index);
        candidate_columns_.push_back(i);
      }
      if (walk.MayCut()) {
        cut_states_.push_back(event * rows_ + row);
        cut_decisions_.push_back(index);
        cut_columns_.push_back(n);
      }
      const int64_t chosen =
          decision == kCut ? n
                           : std::lower_bound(candidates.begin(), candidates.end(), decision) -
                                 candidates.begin();
      decisions_.push_back({row, event, n + (walk.MayCut() ? 1 : 0), chosen});
      const std::vector<int32_t> joined = walk.Apply(decision);
      events.insert(events.end(), joined.begin(), joined.end());
      if (decision == kCut) events.push_back(kCut);
    }
  }

  // Fills states_: before all events and after each.
  void Advance() {
    size_t most = 0;
    for (const std::vector<int32_t>& events : events_) most = std::max(most, events.size());
    const torch::Tensor zero = torch::zeros({rows_, kWidth});
    states_ = {{{zero, zero}, {zero, zero}, zero}};
    for (size_t event = 0; event < most; ++event) {
      std::vector<int64_t> groups(rows_, 0);
      std::vector<uint8_t> joins(rows_, 0), cuts(rows_, 0);
      for (int64_t row = 0; row < rows_; ++row) {
        if (event >= events_[row].size()) continue;
        const int32_t what = events_[row][event];
        (what == kCut ? cuts : joins)[row] = 1;
        if (what != kCut) groups[row] = what;
      }
      States next = states_.back();
      if (Any(joins)) Join(groups, joins, next);
      if (Any(cuts)) Cut(cuts, next);
      states_.push_back(std::move(next));
    }
  }

  static bool Any(const std::vector<uint8_t>& rows) {
    return std::find(rows.begin(), rows.end(), 1) != rows.end();
  }

  // `changed` in those rows, `kept` in the others.
  static torch::Tensor Choose(const std::vector<uint8_t>& rows, const torch::Tensor& changed,
                              const torch::Tensor& kept) {
    if (std::find(rows.begin(), rows.end(), 0) == rows.end()) return changed;
    const auto n = static_cast<int64_t>(rows.size());
    return torch::where(torch::tensor(rows).to(torch::kBool).view({n, 1}), changed, kept);
  }

  void Join(const std::vector<int64_t>& groups, const std::vector<uint8_t>& rows, States& states) {
    const torch::Tensor nodes = nodes_.index_select(0, torch::tensor(groups));
    const auto [h, c] =
        agent_.selector_->forward(nodes, std::make_tuple(states.members.h, states.members.c));
    states.members = {Choose(rows, h, states.members.h), Choose(rows, c, states.members.c)};
    states.sum = Choose(rows, states.sum + nodes, states.sum);
  }

  void Cut(const std::vector<uint8_t>& rows, States& states) {
    const auto [h, c] = agent_.cutter_->forward(
        states.sum / groups_, std::make_tuple(states.summary.h, states.summary.c));
    const torch::Tensor zero = torch::zeros({rows_, kWidth});
    states.summary = {Choose(rows, h, states.summary.h), Choose(rows, c, states.summary.c)};
    states.members = {Choose(rows, h, states.members.h), Choose(rows, zero, states.members.c)};
    states.sum = Choose(rows, zero, states.sum);
  }

  // The rows of `part` of all states that are listed.
  template <typename Part>
  torch::Tensor Rows(const torch::Tensor& indices, Part part) const {
    std::vector<torch::Tensor> all;
    for (const States& states : states_) all.push_back(part(states));
    return torch::cat(all).index_select(0, indices);
  }

  // [decisions, options]: -inf where a decision has fewer.
  torch::Tensor Scores() {
    const torch::Tensor states = torch::tensor(candidate_states_);
    const auto [h, c] = agent_.selector_->forward(
        nodes_.index_select(0, torch::tensor(candidates_)),
        std::make_tuple(Rows(states, [](const States& s) { return s.members.h; }),
                        Rows(states, [](const States& s) { return s.members.c; })));
    torch::Tensor scores = agent_.candidate_score_->forward(h).squeeze(1);
    std::vector<int64_t> decisions = candidate_decisions_, columns = candidate_columns_;
    if (!cut_states_.empty()) {
      const torch::Tensor cuts = torch::tensor(cut_states_);
      const auto [cut_h, cut_c] = agent_.cutter_->forward(
          Rows(cuts, [](const States& s) { return s.sum; }) / groups_,
          std::make_tuple(Rows(cuts, [](const States& s) { return s.summary.h; }),
                          Rows(cuts, [](const States& s) { return s.summary.c; })));
      scores = torch::cat({scores, agent_.cut_score_->forward(cut_h).squeeze(1) - temperature_});
      decisions.insert(decisions.end(), cut_decisions_.begin(), cut_decisions_.end());
      columns.insert(columns.end(), cut_columns_.begin(), cut_columns_.end());
    }
    int64_t most = 0;
    for (const Decision& decision : decisions_) most = std::max(most, decision.options);
    return torch::full({static_cast<int64_t>(decisions_.size()), most},
                       -std::numeric_limits<float>::infinity())
        .index_put({torch::tensor(decisions), torch::tensor(columns)}, scores);
  }

  Agent& agent_;
  const torch::Tensor& nodes_;
  const double groups_;
  const double temperature_;
  const int64_t rows_;
  std::vector<std::vector<int32_t>> events_;  // By scheme: a group that joins, or kCut.
  std::vector<Decision> decisions_;           // All schemes have theirs, one after the other.
  // By option of a decision: its state among `rows_` after each event, and its place in Scores().
  std::vector<int64_t> candidates_, candidate_states_, candidate_decisions_, candidate_columns_;
  std::vector<int64_t> cut_states_, cut_decisions_, cut_columns_;
  std::vector<States> states_;
};

Scheme Agent::SampleScheme(const torch::Tensor& nodes, const Dag& dag, int32_t most_partitions,
                           RandomEngine& random) {
  torch::NoGradGuard no_grad;
  Sampling sampling(*this, nodes, dag, most_partitions);
  Scheme scheme;
  while (!sampling.walk().Done()) {
    const std::vector<int32_t> candidates = sampling.walk().Candidates();
    const torch::Tensor logs = sampling.Options();
    const int64_t chosen = Draw(logs, random);
    const bool cut = chosen == static_cast<int64_t>(candidates.size());
    scheme.decisions.push_back(cut ? kCut : candidates[chosen]);
    scheme.log_probabilities.push_back(static_cast<double>(logs.data_ptr<float>()[chosen]));
    sampling.Apply(scheme.decisions.back());
  }
  scheme.partitions = sampling.walk().Finish();
  return scheme;
}

std::vector<Judged> Agent::JudgeSchemes(const torch::Tensor& nodes, const Dag& dag,
                                        int32_t most_partitions,
                                        const std::vector<Scheme>& schemes) {
  return Replay(*this, nodes, dag, most_partitions, schemes).Judge();
}

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

Placement Agent::SamplePlacement(const torch::Tensor& logits, RandomEngine& random) {
  torch::NoGradGuard no_grad;
  Placement placement;
  for (int64_t d = 0; d < logits.size(0); ++d) {
    const torch::Tensor row = logits[d].contiguous();
    const int64_t partition = Draw(row, random);
    placement.partition_of.push_back(static_cast<int32_t>(partition));
    placement.log_probabilities.push_back(static_cast<double>(row.data_ptr<float>()[partition]));
  }
  return placement;
}

torch::Tensor ChosenOf(const torch::Tensor& logits, const Placement& placement) {
  return logits.gather(1, IndexTensor(placement.partition_of).unsqueeze(1)).squeeze(1);
}

torch::Tensor MeanEntropy(const torch::Tensor& log_probabilities) {
  // What has no probability adds nothing: 0 * -inf would be no number.
  const torch::Tensor logs = log_probabilities.masked_fill(log_probabilities.isneginf(), 0);
  return -(logs.exp() * logs).sum(-1).mean();
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
