#include "planner_service/planners/piper/stage_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "common/base/check.h"
#include "planner_service/planners/piper/recompute.h"

namespace stagewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Branches of one choice of operators that recompute, and how many such answers are kept.
constexpr int64_t kMostBranches = 2000;
constexpr size_t kMostKnown = size_t{1} << 20;

double SyncOf(const std::vector<std::pair<int32_t, double>>& sync, int32_t neighbor) {
  for (const auto& [node, bytes] : sync) {
    if (node == neighbor) return bytes;
  }
  return 0;
}

double Bytes(const PiperChoice& choice, double micro_batches_in_flight) {
  return choice.per_micro_batch * micro_batches_in_flight + choice.fixed;
}

// The choice of an operator that needs less memory; of equals the faster one.
const PiperChoice& Leanest(const PiperMode& mode, double micro_batches_in_flight) {
  if (!mode.recompute) return mode.keep;
  const double keep = Bytes(mode.keep, micro_batches_in_flight);
  const double again = Bytes(*mode.recompute, micro_batches_in_flight);
  if (again == keep) return mode.recompute->time < mode.keep.time ? *mode.recompute : mode.keep;
  return again < keep ? *mode.recompute : mode.keep;
}

}  // namespace

PiperStageCosts::PiperStageCosts(const PiperProblem& problem, const VertexSets& sets)
    : problem_(problem), sets_(sets) {
  std::set<int32_t> degrees;
  for (const auto& modes : problem.modes) {
    for (const PiperMode& mode : modes) degrees.insert(mode.degree);
  }
  degrees_.assign(degrees.begin(), degrees.end());
  CollectCrossings();
  SumDeviceTimes();
  for (int32_t degree : degrees_) AddDegree(degree);
}

// In whole units, so that sums are exact and a larger set never seems to take less.
void PiperStageCosts::SumDeviceTimes() {
  std::vector<double> least(problem_.dag.size(), kInfinity);
  double total = 0;
  for (int32_t v = 0; v < problem_.dag.size(); ++v) {
    for (const PiperMode& mode : problem_.modes[v]) {
      double time = mode.keep.time;
      if (mode.recompute) time = std::min(time, mode.recompute->time);
      least[v] = std::min(least[v], time * mode.degree);
    }
    total += least[v];
  }
  const double unit = total > 0 ? total * 0x1p-50 : 1;
  std::vector<double> units = {0};
  for (int32_t s = 1; s < sets_.size(); ++s) {
    units.push_back(units[sets_.parent(s)] + std::floor(least[sets_.added(s)] / unit));
  }
  for (double count : units) device_time_.push_back(count * unit);
}

void PiperStageCosts::CollectCrossings() {
  std::vector<std::vector<int32_t>> edges_of(problem_.dag.size());  // Out of each operator.
  for (size_t e = 0; e < problem_.edges.size(); ++e) {
    edges_of[problem_.edges[e].from].push_back(static_cast<int32_t>(e));
  }
  crossing_begin_ = {0, 0};
  for (int32_t s = 1; s < sets_.size(); ++s) {
    const int32_t parent = sets_.parent(s);
    const int32_t added = sets_.added(s);
    for (int32_t i = crossing_begin_[parent]; i < crossing_begin_[parent + 1]; ++i) {
      if (problem_.edges[crossing_[i]].to != added) crossing_.push_back(crossing_[i]);
    }
    for (int32_t e : edges_of[added]) crossing_.push_back(e);
    crossing_begin_.push_back(static_cast<int32_t>(crossing_.size()));
  }
}

void PiperStageCosts::AddDegree(int32_t degree) {
  std::vector<double> in, out;
  for (const PiperEdge& edge : problem_.edges) {
    const PiperMode* reader = FindMode(problem_, edge.to, degree);
    const PiperMode* producer = FindMode(problem_, edge.from, degree);
    in.push_back(edge.bytes + (reader ? SyncOf(reader->sync_from, edge.from) : 0));
    out.push_back(edge.bytes + (producer ? SyncOf(producer->sync_to, edge.to) : 0));
  }
  Sums sums;
  const auto add = [](std::vector<double>& sum, int32_t parent, double own) {
    sum.push_back((parent < 0 ? 0 : sum[parent]) + own);
  };
  for (int32_t s = 0; s < sets_.size(); ++s) {
    const int32_t parent = sets_.parent(s);
    const PiperMode* mode = parent < 0 ? nullptr : FindMode(problem_, sets_.added(s), degree);
    const PiperMode counted = mode ? *mode : PiperMode();
    const PiperChoice& keep = counted.keep;
    const PiperChoice& again = counted.recompute ? *counted.recompute : keep;
    sums.missing.push_back(parent < 0 ? 0 : sums.missing[parent] + (mode == nullptr ? 1 : 0));
    add(sums.time, parent, keep.time);
    add(sums.parameters, parent, counted.parameter_bytes);
    add(sums.per_micro_batch, parent, keep.per_micro_batch);
    add(sums.fixed, parent, keep.fixed);
    add(sums.recompute_time, parent, again.time);
    add(sums.recompute_per_micro_batch, parent, again.per_micro_batch);
    add(sums.recompute_fixed, parent, again.fixed);
    double entering = 0, leaving = 0;
    for (int32_t i = crossing_begin_[s]; i < crossing_begin_[s + 1]; ++i) {
      entering += in[crossing_[i]];
      leaving += out[crossing_[i]];
    }
    sums.entering.push_back(entering);
    sums.leaving.push_back(leaving);
  }
  sums_.push_back(std::move(sums));
  edge_in_.push_back(std::move(in));
  edge_out_.push_back(std::move(out));
}

void PiperStageCosts::FillLeast(const Sums& sums, int32_t degree,
                                int32_t micro_batches_in_flight) const {
  if (static_cast<int32_t>(sums.least_bytes.size()) <= micro_batches_in_flight) {
    sums.least_bytes.resize(micro_batches_in_flight + 1);
  }
  std::vector<double>& bytes = sums.least_bytes[micro_batches_in_flight];
  if (!bytes.empty()) return;
  bytes.push_back(0);
  for (int32_t s = 1; s < sets_.size(); ++s) {
    const PiperMode* mode = FindMode(problem_, sets_.added(s), degrees_[degree]);
    const double own =
        mode ? Bytes(Leanest(*mode, micro_batches_in_flight), micro_batches_in_flight) : 0;
    bytes.push_back(bytes[sets_.parent(s)] + own);
  }
}

// Bytes of the edges that enter or leave the stage; `input` gets those that enter, without sync.
double PiperStageCosts::Crossings(int32_t inner, int32_t outer, int32_t degree,
                                  double* input) const {
  const Sums& sums = sums_[degree];
  double bytes = sums.entering[inner] + sums.leaving[outer];
  double entering = 0;
  for (int32_t i = crossing_begin_[inner]; i < crossing_begin_[inner + 1]; ++i) {
    const int32_t e = crossing_[i];
    if (sets_.Has(outer, problem_.edges[e].to)) {
      entering += problem_.edges[e].bytes;
    } else {
      bytes -= edge_in_[degree][e] + edge_out_[degree][e];  // Passes by.
    }
  }
  *input = entering;
  return bytes;
}

bool PiperStageCosts::Within(int32_t inner, int32_t outer, const Shape& shape, double limit) const {
  const Sums& sums = sums_[shape.degree];
  if (sums.missing[outer] != sums.missing[inner]) return false;
  const double d = shape.replicas;
  const double time = sums.time[outer] - sums.time[inner];
  double budget = limit * d;
  budget -= 4 * (d - 1) * (sums.parameters[outer] - sums.parameters[inner]) /
            static_cast<double>(problem_.micro_batches) / problem_.bandwidth;
  const double again = sums.recompute_time[outer] - sums.recompute_time[inner];
  if (!(std::min(time, again) <= budget)) return false;
  double input = 0;
  budget -= 2 * Crossings(inner, outer, shape.degree, &input) / problem_.bandwidth;
  if (!(std::min(time, again) <= budget)) return false;
  const double least = LeastTime(inner, outer, shape, input);
  return least < kInfinity && least <= budget;
}

// Whether the stage fits without recomputation.
bool PiperStageCosts::FitsPlain(int32_t inner, int32_t outer, const Shape& shape,
                                double input) const {
  const Sums& sums = sums_[shape.degree];
  const double kept =
      (sums.per_micro_batch[outer] - sums.per_micro_batch[inner]) * shape.micro_batches_in_flight +
      sums.fixed[outer] - sums.fixed[inner];
  return kept <= MemoryFor(shape, input);
}

// What the choices of a stage's operators may take, with a margin for the rounding of sums.
double PiperStageCosts::MemoryFor(const Shape& shape, double input) const {
  const double inputs = problem_.inputs_in_memory ? input * shape.micro_batches_in_flight : 0;
  return problem_.memory * (1 + 1e-12) - inputs;
}

// The least sum of times that fits the memory; infinite if none does. REQUIRES: every operator has
// the degree.
double PiperStageCosts::LeastTime(int32_t inner, int32_t outer, const Shape& shape,
                                  double input) const {
  const Sums& sums = sums_[shape.degree];
  const double c = shape.micro_batches_in_flight;
  if (FitsPlain(inner, outer, shape, input)) return sums.time[outer] - sums.time[inner];
  const double memory = MemoryFor(shape, input);
  if (problem_.recompute_by_stage) {
    const double again =
        (sums.recompute_per_micro_batch[outer] - sums.recompute_per_micro_batch[inner]) * c +
        sums.recompute_fixed[outer] - sums.recompute_fixed[inner];
    if (again > memory) return kInfinity;
    return sums.recompute_time[outer] - sums.recompute_time[inner];
  }
  FillLeast(sums, shape.degree, shape.micro_batches_in_flight);
  if (sums.least_bytes[shape.micro_batches_in_flight][outer] -
          sums.least_bytes[shape.micro_batches_in_flight][inner] >
      memory) {
    return kInfinity;
  }
  const uint64_t key = (static_cast<uint64_t>(inner) << 40) ^ (static_cast<uint64_t>(outer) << 16) ^
                       (static_cast<uint64_t>(shape.micro_batches_in_flight) << 4) ^
                       static_cast<uint64_t>(shape.degree);
  if (const auto known = least_.find(key); known != least_.end()) return known->second;
  double least = 0;
  Recomputing(Difference(inner, outer), shape, input, &least);
  if (least_.size() < kMostKnown) least_[key] = least;
  return least;
}

std::vector<int32_t> PiperStageCosts::Difference(int32_t inner, int32_t outer) const {
  std::vector<int32_t> operators;
  const auto a = sets_[outer];
  const auto b = sets_[inner];
  for (size_t w = 0; w < a.size(); ++w) {
    for (uint64_t bits = a[w] & ~b[w]; bits != 0; bits &= bits - 1) {
      operators.push_back(static_cast<int32_t>(w * 64) + std::countr_zero(bits));
    }
  }
  return operators;
}

// Which operators recompute, and the stage's time. REQUIRES: the leanest choices fit.
std::vector<bool> PiperStageCosts::Recomputing(const std::vector<int32_t>& operators,
                                               const Shape& shape, double input,
                                               double* time) const {
  std::vector<bool> recompute(operators.size());
  std::vector<RecomputeItem> items;
  std::vector<size_t> index;
  const double c = shape.micro_batches_in_flight;
  double bytes = 0;
  *time = 0;
  for (size_t i = 0; i < operators.size(); ++i) {
    const PiperMode& mode = *FindMode(problem_, operators[i], degrees_[shape.degree]);
    *time += mode.keep.time;
    bytes += Bytes(mode.keep, c);
    if (!mode.recompute) continue;
    const double extra = mode.recompute->time - mode.keep.time;
    const double gain = Bytes(mode.keep, c) - Bytes(*mode.recompute, c);
    if (extra <= 0 && gain >= 0) {
      recompute[i] = true;
      *time += extra;
      bytes -= gain;
    } else if (gain > 0) {
      items.push_back({extra, gain});
      index.push_back(i);
    }
  }
  const double needed = bytes - MemoryFor(shape, input);
  if (needed <= 0) return recompute;
  const RecomputeAnswer answer = ChooseRecompute(items, needed, kMostBranches);
  *time += answer.time;
  for (size_t i = 0; i < items.size(); ++i) {
    if (answer.chosen[i]) recompute[index[i]] = true;
  }
  return recompute;
}

PiperStage PiperStageCosts::Build(int32_t inner, int32_t outer, const Shape& shape) const {
  PiperStage stage;
  stage.operators = Difference(inner, outer);
  stage.recompute.resize(stage.operators.size());
  stage.replicas = shape.replicas;
  stage.degree = degrees_[shape.degree];
  double input = 0;
  Crossings(inner, outer, shape.degree, &input);
  CHECK(LeastTime(inner, outer, shape, input) < kInfinity);
  if (FitsPlain(inner, outer, shape, input)) return stage;
  double time = 0;
  if (!problem_.recompute_by_stage) {
    stage.recompute = Recomputing(stage.operators, shape, input, &time);
  } else {
    for (size_t i = 0; i < stage.operators.size(); ++i) {
      stage.recompute[i] =
          FindMode(problem_, stage.operators[i], stage.degree)->recompute.has_value();
    }
  }
  return stage;
}

}  // namespace stagewright
