#include "common/memory/tape_casts.h"

#include <algorithm>
#include <map>
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
    const size_t values = tape_.values.size();
    for (size_t v = 0; v < values; ++v) Report(static_cast<int32_t>(v));
    tape_.steps = std::move(steps_);
  }

 private:
  // A node, after the casts of its operands.
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
    for (size_t i = 0; i < step.makes.size(); ++i) TypeResult(types.results[i], i, step);
    steps_.push_back(std::move(step));
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

  void TypeResult(DType dtype, size_t i, const TapeStep& step) {
    TapeValue& made = tape_.values[step.makes[i]];
    made.dtype = dtype;
    if (!step.view) {
      tape_.storages[made.storage].dtype = dtype;
    } else if (!step.reads.empty()) {
      made.storage = tape_.values[step.reads.front()].storage;
    }
    if (made.reported) maker_[step.makes[i]] = step.node;
  }

  // What the loss or the prediction is reported in: the graph's type, without a gradient.
  void Report(int32_t value) {
    const auto maker = maker_.find(value);
    const TensorMeta* const meta = tape_.values[value].meta;
    if (maker == maker_.end() || tape_.values[value].dtype == meta->dtype) return;
    TapeValue copy;
    copy.meta = meta;
    copy.dtype = meta->dtype;
    copy.storage = AddStorage(meta, meta->dtype);
    copy.segment = tape_.values[value].segment;
    copy.given = true;
    TapeStep cast;
    cast.node = maker->second;
    cast.cast = true;
    cast.segment = copy.segment;
    cast.reads = {value};
    cast.makes = {static_cast<int32_t>(tape_.values.size())};
    tape_.values.push_back(copy);
    steps_.push_back(std::move(cast));
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
  std::map<int32_t, NodeId> maker_;     // By value: of what is reported.
};

}  // namespace

void AddCasts(const Graph& graph, Precision precision, StageTape& tape) {
  TapeCaster(graph, precision, tape).Run();
}

}  // namespace stagewright
