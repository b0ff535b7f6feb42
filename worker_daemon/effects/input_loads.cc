#include "worker_daemon/effects/input_loads.h"

#include <memory>
#include <set>
#include <utility>

#include "common/program/step_samples.h"

namespace stagewright {
namespace {

std::shared_ptr<const std::vector<int64_t>> BatchOf(std::span<const int64_t> samples) {
  if (samples.empty()) return nullptr;
  return std::make_shared<const std::vector<int64_t>>(samples.begin(), samples.end());
}

}  // namespace

InputLoads::InputLoads(const Graph& graph, const Program& program, const DevicePlan& plan)
    : mini_batch_(program.mini_batch), has_sections_(plan.has_sections) {
  const auto collect = [&](const SectionPlan& section, Section& loads) {
    for (const ProgramAction& entry : *section.program) {
      const Action& action = entry.action;
      const bool forward = action.kind == ActionKind::kForward;
      if ((!forward && action.kind != ActionKind::kRecompute) || action.samples.empty()) continue;
      const StagePlan& stage = plan.OfStage(action.stage);
      for (InputId input : stage.inputs) loads.push_back({input, action.samples});
      if (forward && stage.target.has_value()) loads.push_back({*stage.target, action.samples});
    }
  };
  collect(plan.prologue, prologue_);
  collect(plan.body, body_);
  collect(plan.epilogue, epilogue_);
}

void InputLoads::Append(const Section& section, const Batch& now, const Batch& next,
                        std::vector<InputLoad>& loads) const {
  for (const Load& load : section) {
    const auto [step, range] = SamplesInStep(0, load.samples, mini_batch_);
    const Batch& batch = step == 0 ? now : next;
    if (batch != nullptr) loads.push_back({load.input, batch, range});
  }
}

std::vector<InputLoad> InputLoads::From(const StepInput& input, bool begins_run) const {
  const Batch now = BatchOf(input.samples), next = BatchOf(input.next_samples);
  std::vector<InputLoad> loads;
  if (!has_sections_) {
    Append(body_, now, nullptr, loads);
    Append(body_, next, nullptr, loads);
    return loads;
  }
  if (begins_run) Append(prologue_, now, next, loads);
  Append(input.steps_left > 0 ? body_ : epilogue_, now, next, loads);
  if (input.steps_left > 0) {
    Append(input.steps_left > 1 ? body_ : epilogue_, next, nullptr, loads);
  } else {
    Append(prologue_, next, nullptr, loads);
  }
  return loads;
}

std::vector<InputLoad> InputLoads::OfRun(std::span<const int64_t> samples) const {
  std::vector<InputLoad> loads;
  Append(has_sections_ ? prologue_ : body_, BatchOf(samples), nullptr, loads);
  return loads;
}

std::map<Bytes, int32_t> InputLoads::Buffers(const Graph& graph, int32_t ahead) const {
  std::set<std::pair<InputId, Bytes>> sizes;
  for (const Section* section : {&prologue_, &body_, &epilogue_}) {
    for (const Load& load : *section)
      sizes.insert({load.input, graph.input(load.input).meta.SizeBytes(load.samples.size())});
  }
  std::map<Bytes, int32_t> buffers;
  for (const auto& [input, bytes] : sizes) buffers[bytes] += ahead + 1;
  return buffers;
}

}  // namespace stagewright
