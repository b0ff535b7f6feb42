#include "common/memory/stage_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/cost/retention.h"

namespace stagewright {
namespace {

constexpr int32_t kNone = -1;

// Memory, now and at most.
class Ledger {
 public:
  void Take(Bytes bytes) {
    now_ += bytes;
    most_ = std::max(most_, now_);
  }
  void Free(Bytes bytes) { now_ -= bytes; }
  void TakeAndFree(Bytes bytes) {
    Take(bytes);
    Free(bytes);
  }
  Bytes now() const { return now_; }
  // The most since the last call, above what was there then.
  Bytes Peak() {
    const Bytes peak = most_ - std::exchange(start_, now_);
    most_ = now_;
    return peak;
  }

 private:
  Bytes now_ = 0, most_ = 0, start_ = 0;
};

// Sizes for one number of samples, by step, value and storage.
struct Sizes {
  Sizes(const Graph& graph, const CostModel& costs, const StageTape& tape, int64_t samples) {
    for (const TapeStep& step : tape.steps) {
      if (step.cast) {
        for (std::vector<Bytes>* bytes : {&own, &forward, &backward}) bytes->push_back(0);
        continue;
      }
      own.push_back(step.profiled ? costs.SavedBytes(step.node, samples)
                                  : HiddenBytes(graph, step.node, samples));
      forward.push_back(step.profiled ? costs.WorkspaceBytes(step.node, samples)
                                      : TemporaryBytes(graph, step.node, samples, false));
      for (int32_t value : step.widened)
        forward.back() += tape.values[value].meta->Elements(samples) * SizeOf(DType::kFloat32);
      backward.push_back(step.profiled ? 0 : TemporaryBytes(graph, step.node, samples, true));
    }
    for (const TapeValue& value : tape.values)
      values.push_back(value.meta->Elements(samples) * SizeOf(value.dtype));
    for (const TapeStorage& storage : tape.storages) {
      storages.push_back(
          storage.meta == nullptr ? 0 : storage.meta->Elements(samples) * SizeOf(storage.dtype));
    }
  }

  std::vector<Bytes> own;                // Saved beside values of the graph.
  std::vector<Bytes> forward, backward;  // Taken while the step runs.
  std::vector<Bytes> values, storages;
};

// Takes one share through the passes of its stage.
class PassReplay {
 public:
  PassReplay(const StageTape& tape, const Sizes& sizes)
      : tape_(tape),
        sizes_(sizes),
        users_(tape.storages.size(), 0),
        saved_(tape.steps.size(), false),
        gradient_(tape.values.size(), kNone),
        crossing_(tape.values.size(), kNone) {}

  // `keep`: what the nodes save. `roots`: what a whole backward pass starts from.
  Bytes Forward(bool keep, bool roots);
  Bytes Backward();
  Bytes InputHalf();
  Bytes WeightHalf();

  // From now on gradients of all parameters stay, not only those that are new in every pass.
  void KeepGradients() { keeps_gradients_ = true; }

  Bytes now() const { return ledger_.now(); }
  // The caller takes the gradients of what was received and lets go of those that it lent.
  void Return();

 private:
  struct Gradient {
    Bytes bytes = 0;
    int32_t users = 0;
    Bytes lent = 0;  // By the caller of the pass, as long as that is one of the users.
  };

  Bytes SizeOf(int32_t value) const { return sizes_.values[value]; }
  void Use(int32_t storage);
  void Unuse(int32_t storage);
  void Save(size_t step);
  void Forget(size_t step);

  int32_t NewGradient(Bytes bytes);
  void Drop(int32_t gradient);
  void Start(int32_t value);
  int32_t GradientOf(const TapeStep& step, int32_t operand, int32_t of_result);
  bool Differentiate(size_t step, bool operands, bool parameters);
  bool DifferentiateProfiled(size_t step, bool parameters);
  void CastGradients(const TapeStep& step);
  void KeepGradients(const TapeStep& step);
  void Deliver(const TapeStep& step, int32_t value, int32_t gradient);
  void Accumulate(int32_t& sum, int32_t gradient, Bytes bytes);

  const StageTape& tape_;
  const Sizes& sizes_;
  bool halves_ = false;
  bool keeps_gradients_ = false;
  Ledger ledger_;
  std::vector<int32_t> users_;  // By storage.
  std::vector<bool> saved_;     // By step: it holds what it saves.
  std::vector<Gradient> gradients_;
  std::vector<int32_t> gradient_;    // By value: within the pass or segment.
  std::vector<int32_t> crossing_;    // By value: for another segment, or received from elsewhere.
  std::vector<int32_t> of_results_;  // Gradients of what the step at hand made.
  // Gradients that the step at hand makes for what it read: value and gradient.
  std::vector<std::pair<int32_t, int32_t>> made_;
  std::vector<int32_t> starts_;  // Gradients that a segment or the weight half starts from.
};

void PassReplay::Use(int32_t storage) {
  if (storage != kNone && users_[storage]++ == 0) ledger_.Take(sizes_.storages[storage]);
}

void PassReplay::Unuse(int32_t storage) {
  if (storage != kNone && --users_[storage] == 0) ledger_.Free(sizes_.storages[storage]);
}

void PassReplay::Save(size_t index) {
  const TapeStep& step = tape_.steps[index];
  saved_[index] = true;
  ledger_.Take(sizes_.own[index]);
  for (int32_t storage : step.saves) Use(storage);
}

void PassReplay::Forget(size_t index) {
  if (!saved_[index]) return;
  const TapeStep& step = tape_.steps[index];
  saved_[index] = false;
  ledger_.Free(sizes_.own[index]);
  for (int32_t storage : step.saves) Unuse(storage);
}

Bytes PassReplay::Forward(bool keep, bool roots) {
  for (int32_t input : tape_.inputs) Use(input);
  for (size_t i = 0; i < tape_.steps.size(); ++i) {
    const TapeStep& step = tape_.steps[i];
    for (int32_t value : step.makes) Use(tape_.values[value].storage);
    if (keep || step.profiled) Save(i);
    ledger_.TakeAndFree(sizes_.forward[i]);
    for (int32_t value : step.last_uses) {
      if (!tape_.values[value].given) Unuse(tape_.values[value].storage);
    }
  }
  for (int32_t input : tape_.inputs) Unuse(input);
  for (const TapeValue& value : tape_.values) {
    if (value.given && !(roots && value.root)) Unuse(value.storage);
  }
  if (!keep) {
    for (size_t i = 0; i < tape_.steps.size(); ++i) Forget(i);
  }
  return ledger_.Peak();
}

int32_t PassReplay::NewGradient(Bytes bytes) {
  ledger_.Take(bytes);
  gradients_.push_back({bytes, 1});
  return static_cast<int32_t>(gradients_.size()) - 1;
}

void PassReplay::Drop(int32_t gradient) {
  if (--gradients_[gradient].users == 0) ledger_.Free(gradients_[gradient].bytes);
}

// The gradient of a root. That of a message lies in the message's buffer, that of the loss is made
// now and kept by a whole pass.
void PassReplay::Start(int32_t value) {
  const TapeValue& root = tape_.values[value];
  if (!root.root || !root.flows) return;
  const Bytes bytes = root.local ? SizeOf(value) : 0;
  if (root.sent) {
    gradients_.push_back({0, 2, bytes});
  } else {
    ledger_.Take(bytes);
    gradients_.push_back({bytes, halves_ ? 1 : 2});
  }
  (halves_ ? crossing_ : gradient_)[value] = static_cast<int32_t>(gradients_.size()) - 1;
}

int32_t PassReplay::GradientOf(const TapeStep& step, int32_t operand, int32_t of_result) {
  const bool part =
      step.passes_gradient && (!step.sums_gradient || SizeOf(operand) == SizeOf(step.makes[0]));
  if (!part) return NewGradient(SizeOf(operand));
  ++gradients_[of_result].users;
  return of_result;
}

void PassReplay::Accumulate(int32_t& sum, int32_t gradient, Bytes bytes) {
  if (sum == kNone) {
    sum = gradient;
    return;
  }
  const int32_t before = sum;
  if (gradients_[before].users == 1) {
    Drop(gradient);
    return;
  }
  sum = gradients_[gradient].users == 1 ? gradient : NewGradient(bytes);
  if (sum != gradient) Drop(gradient);
  Drop(before);
}

void PassReplay::Deliver(const TapeStep& step, int32_t value, int32_t gradient) {
  const TapeValue& to = tape_.values[value];
  const Bytes bytes = SizeOf(value);
  if (halves_ && to.segment != step.segment) {
    int32_t& sum = crossing_[value];
    if (sum == kNone) {
      sum = gradient;
      return;
    }
    const int32_t both = NewGradient(bytes);
    Drop(std::exchange(sum, both));
    Drop(gradient);
    return;
  }
  int32_t& sum = gradient_[value];
  if (to.received() && sum == kNone && gradients_[gradient].users > 1) {
    sum = NewGradient(bytes);  // Returned, so nobody else may have it.
    Drop(gradient);
    return;
  }
  Accumulate(sum, gradient, bytes);
}

// False if no gradient has come.
bool PassReplay::Differentiate(size_t index, bool operands, bool parameters) {
  const TapeStep& step = tape_.steps[index];
  if (step.profiled) return DifferentiateProfiled(index, parameters);
  std::vector<int32_t>& of_results = of_results_;
  of_results.clear();
  for (int32_t value : step.makes) {
    const int32_t gradient = std::exchange(gradient_[value], kNone);
    if (gradient != kNone) of_results.push_back(gradient);
  }
  if (of_results.empty()) return false;
  std::vector<std::pair<int32_t, int32_t>>& made = made_;
  made.clear();
  for (int32_t value : step.reads) {
    if (operands && tape_.values[value].flows)
      made.emplace_back(value, GradientOf(step, value, of_results.front()));
  }
  const bool casts = step.cast_gradients > 0;
  const Bytes direct = casts ? step.cast_gradients : step.parameters;
  ledger_.TakeAndFree((parameters ? direct : 0) + sizes_.backward[index]);
  if (parameters && !casts) KeepGradients(step);
  if (!halves_ || !step.waits()) Forget(index);
  for (int32_t gradient : of_results) Drop(gradient);
  if (parameters && casts) CastGradients(step);
  for (const auto& [value, gradient] : made) Deliver(step, value, gradient);
  return true;
}

// Only those gradients of planning-only nodes are told apart that are new in every pass.
bool PassReplay::DifferentiateProfiled(size_t index, bool parameters) {
  const TapeStep& step = tape_.steps[index];
  if (!parameters || step.passing_parameters == 0) return false;
  ledger_.Take(step.passing_parameters);
  Forget(index);
  return true;
}

// Gradients of weights in the type of the parameters, made of those in the smaller one.
void PassReplay::CastGradients(const TapeStep& step) {
  ledger_.TakeAndFree(step.cast_gradients + step.parameters);
  KeepGradients(step);
}

void PassReplay::KeepGradients(const TapeStep& step) {
  ledger_.Take(keeps_gradients_ ? step.own_parameters : step.passing_parameters);
}

Bytes PassReplay::Backward() {
  for (size_t v = 0; v < tape_.values.size(); ++v) Start(static_cast<int32_t>(v));
  for (size_t i = tape_.steps.size(); i-- > 0;) {
    if (tape_.steps[i].backward) Differentiate(i, true, true);
  }
  return ledger_.Peak();
}

Bytes PassReplay::InputHalf() {
  halves_ = true;
  for (size_t v = 0; v < tape_.values.size(); ++v) Start(static_cast<int32_t>(v));
  std::vector<std::vector<size_t>> steps(static_cast<size_t>(tape_.segments));
  for (size_t i = tape_.steps.size(); i-- > 0;) {
    if (tape_.steps[i].backward) steps[static_cast<size_t>(tape_.steps[i].segment)].push_back(i);
  }
  std::vector<int32_t> waiting;
  for (size_t segment = steps.size(); segment-- > 1;) {
    for (size_t i : steps[segment]) {
      for (int32_t value : tape_.steps[i].makes) {
        const int32_t gradient = std::exchange(crossing_[value], kNone);
        if (gradient == kNone) continue;
        gradient_[value] = gradient;
        ++gradients_[gradient].users;
        starts_.push_back(gradient);
      }
    }
    for (size_t i : steps[segment]) {
      Differentiate(i, true, false);
      if (!tape_.steps[i].waits()) Forget(i);
    }
    if (SegmentPlan::HasParameters(static_cast<int32_t>(segment))) {
      waiting.insert(waiting.end(), starts_.begin(), starts_.end());
    } else {
      for (int32_t gradient : starts_) Drop(gradient);
    }
    starts_.clear();
  }
  starts_ = std::move(waiting);
  return ledger_.Peak();
}

void PassReplay::Return() {
  for (size_t v = 0; v < tape_.values.size(); ++v) {
    if (tape_.values[v].received() && crossing_[v] != kNone)
      Drop(std::exchange(crossing_[v], kNone));
  }
  for (Gradient& gradient : gradients_) {
    if (gradient.lent == 0) continue;
    if (--gradient.users > 0) ledger_.Take(gradient.lent);
    gradient.bytes = std::exchange(gradient.lent, Bytes(0));
  }
  ledger_.Peak();
}

Bytes PassReplay::WeightHalf() {
  for (size_t i = tape_.steps.size(); i-- > 0;) {
    const TapeStep& step = tape_.steps[i];
    if (!step.backward || !step.waits()) continue;
    Bytes of_parameter_side = 0;
    for (int32_t value : step.reads) {
      if (tape_.values[value].segment == SegmentPlan::kParameterSide && tape_.values[value].flows)
        of_parameter_side += SizeOf(value);
    }
    ledger_.Take(of_parameter_side);
    CastGradients(step);
    Forget(i);
  }
  return ledger_.Peak();
}

}  // namespace

StageMemory FollowStage(const Graph& graph, const CostModel& costs, const StageTape& tape,
                        int64_t samples, bool has_backward, bool split) {
  StageMemory memory;
  const Sizes sizes(graph, costs, tape, samples);
  memory.forward_only = PassReplay(tape, sizes).Forward(false, false);
  if (!has_backward) return memory;
  PassReplay replay(tape, sizes);
  memory.forward = replay.Forward(true, !split);
  memory.saved = replay.now();
  if (!split) {
    PassReplay first = replay;
    first.KeepGradients();
    memory.first.backward = first.Backward();
    memory.later.backward = replay.Backward();
    return memory;
  }
  memory.input_half = replay.InputHalf();
  const Bytes returned = replay.now();
  replay.Return();
  memory.between = replay.now();
  PassReplay first = replay;
  first.KeepGradients();
  memory.first.weight_half = first.WeightHalf();
  memory.later.weight_half = replay.WeightHalf();
  for (StageMemory::Gradients* of : {&memory.first, &memory.later})
    of->backward = std::max(memory.input_half, returned - memory.saved + of->weight_half);
  return memory;
}

}  // namespace stagewright
