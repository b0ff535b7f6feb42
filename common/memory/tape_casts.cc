#include "common/memory/tape_casts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/cost/parameters.h"
#include "common/cost/retention.h"
#include "common/training/autocast.h"

namespace stagewright {
namespace {

class TapeCaster {
 public:
  TapeCaster(const Graph& graph, Precision precision, StageTape& tape)
      : graph_(graph), precision_(precision), tape_(tape) {
    for (const TapeValue& value : tape.values) first_storage_.push_back(value.storage);
  }

  void Run() {
    for (TapeStep& step : std::exchange(tape_.steps, {})) {
      if (step.profiled) {
        steps_.push_back(std::move(step));
      } else {
        Add(std::move(step));
      }
    }
    tape_.steps = std::move(steps_);
  }

 private:
  // A node, after the casts of its operands and before those of its results.
  void Add(TapeStep step) {
    const NodeId id = step.node;
    std::vector<DType> values, inputs;
    for (int32_t value : step.reads) values.push_back(tape_.values[value].dtype);
    for (InputId input : graph_.Inputs(id)) inputs.push_back(graph_.input(input).meta.dtype);
    const AutocastTypes types = TypesOf(graph_, id, precision_, values, inputs);
    TakeOperands(types, step);
    for (int32_t value : step.reads) {
      const bool smaller = tape_.values[value].dtype == SmallerType(precision_);
      if (types.widens && smaller && !step.view) step.widened.push_back(value);
    }
    if (CastsWeights(graph_, id, precision_)) {
      for (ParameterId p : graph_.Parameters(id)) {
        if (graph_.parameter(p).trainable)
          step.cast_gradients += CastBytes(graph_.parameter(p), precision_);
      }
    }
    std::vector<TapeStep> back;
    for (size_t i = 0; i < step.makes.size(); ++i) {
      if (auto cast = TypeResult(types.results[i], i, step)) back.push_back(*std::move(cast));
    }
    steps_.push_back(std::move(step));
    for (TapeStep& cast : back) steps_.push_back(std::move(cast));
  }

  void TakeOperands(const AutocastTypes& types, TapeStep& step) {
    const bool saves = step.backward && !step.view && NeedsItsInputs(graph_, step.node);
    const std::vector<int32_t> reads = step.reads;
    for (size_t i = 0; i < reads.size(); ++i) {
      const TapeValue& value = tape_.values[reads[i]];
      int32_t now = value.storage;
      if (types.operands[i] != value.dtype) {
        step.reads[i] = Cast(step, value.meta, types.operands[i], reads[i]);
        now = tape_.values[step.reads[i]].storage;
        step.last_uses.push_back(step.reads[i]);
      }
      if (saves) SaveInstead(first_storage_[reads[i]], now, step);
    }
    const auto inputs = graph_.Inputs(step.node);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorMeta& meta = graph_.input(inputs[i]).meta;
      const DType taken = types.operands[reads.size() + i];
      if (taken == meta.dtype) continue;
      const int32_t copy = Cast(step, &meta, taken, -1);
      step.last_uses.push_back(copy);
      if (saves) SaveInstead(StorageOf(meta), tape_.values[copy].storage, step);
    }
  }

  int32_t StorageOf(const TensorMeta& input) const {
    for (int32_t storage : tape_.inputs) {
      if (tape_.storages[storage].meta == &input) return storage;
    }
    return -1;
  }

  // Views of parameters have no storage until they are cast.
  static void SaveInstead(int32_t before, int32_t now, TapeStep& step) {
    if (before == now) return;
    const auto saved = std::find(step.saves.begin(), step.saves.end(), before);
    if (before >= 0 && saved != step.saves.end()) {
      *saved = now;
    } else if (now >= 0) {
      step.saves.push_back(now);
    }
  }

  // The copy of an operand of `step`, of `value` or else of an input of the graph.
  int32_t Cast(const TapeStep& step, const TensorMeta* meta, DType dtype, int32_t value) {
    TapeValue copy;
    copy.meta = meta;
    copy.dtype = dtype;
    copy.storage = AddStorage(meta, dtype);
    copy.segment = step.segment;
    copy.flows = value >= 0 && tape_.values[value].flows;
    TapeStep cast = CastStep(step, copy.flows);
    if (value >= 0) cast.reads = {value};
    tape_.values.push_back(copy);
    first_storage_.push_back(copy.storage);
    const auto index = static_cast<int32_t>(tape_.values.size()) - 1;
    cast.makes = {index};
    steps_.push_back(std::move(cast));
    return index;
  }

  // The i-th result in the type that it has; where the stage gives it in another, the cast.
  std::optional<TapeStep> TypeResult(DType dtype, size_t i, TapeStep& step) {
    const int32_t index = step.makes[i];
    if (step.view) {
      const bool of_value = !step.reads.empty();
      if (of_value) tape_.values[index].storage = tape_.values[step.reads.front()].storage;
    } else {
      tape_.storages[tape_.values[index].storage].dtype = dtype;
    }
    if (!tape_.values[index].given || dtype == tape_.values[index].dtype) {
      tape_.values[index].dtype = dtype;
      return std::nullopt;
    }
    TapeValue made = tape_.values[index];
    made.dtype = dtype;
    made.given = made.sent = made.root = made.local = made.crosses = false;
    const auto raw = static_cast<int32_t>(tape_.values.size());
    tape_.values.push_back(made);
    first_storage_.push_back(made.storage);
    TapeValue& given = tape_.values[index];
    given.storage = AddStorage(given.meta, given.dtype);
    TapeStep cast = CastStep(step, given.flows);
    cast.reads = {raw};
    cast.makes = {index};
    cast.last_uses = {raw};
    step.makes[i] = raw;
    if (std::erase(step.last_uses, index) > 0) cast.last_uses.push_back(index);
    return cast;
  }

  static TapeStep CastStep(const TapeStep& of, bool flows) {
    TapeStep cast;
    cast.node = of.node;
    cast.cast = true;
    cast.backward = of.backward && flows;
    cast.segment = of.segment;
    return cast;
  }

  int32_t AddStorage(const TensorMeta* meta, DType dtype) {
    tape_.storages.push_back({meta, dtype});
    return static_cast<int32_t>(tape_.storages.size()) - 1;
  }

  const Graph& graph_;
  const Precision precision_;
  StageTape& tape_;
  std::vector<TapeStep> steps_;
  std::vector<int32_t> first_storage_;  // By value: before anything was cast.
};

}  // namespace

void AddCasts(const Graph& graph, Precision precision, StageTape& tape) {
  TapeCaster(graph, precision, tape).Run();
}

}  // namespace stagewright
