#include "worker_daemon/executor/device_job.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/validation/validate.h"

namespace stagewright {
namespace {

bool HasSameStages(const Program& program, const Program& other) {
  return program.mini_batch == other.mini_batch &&
         std::equal(program.stages.begin(), program.stages.end(), other.stages.begin(),
                    other.stages.end(), [](const ProgramStage& a, const ProgramStage& b) {
                      return a.nodes == b.nodes && a.replicated == b.replicated &&
                             a.devices == b.devices && a.micro_batch == b.micro_batch;
                    });
}

}  // namespace

std::vector<LengthSpec> AllLengths(const DeviceJob& spec) {
  std::vector<LengthSpec> all = {{spec.graph, spec.program, spec.evaluation}};
  all.insert(all.end(), spec.lengths.begin(), spec.lengths.end());
  return all;
}

std::vector<const Program*> ProgramsOf(const DeviceJob& spec) {
  std::vector<const Program*> programs;
  for (const LengthSpec& length : AllLengths(spec)) {
    for (const auto& program : {length.program, length.evaluation}) {
      if (program != nullptr) programs.push_back(program.get());
    }
  }
  return programs;
}

uint32_t ChannelsOf(const Program& program) {
  return static_cast<uint32_t>(std::max(program.channels.size(), program.reductions.size()));
}

bool EvaluatesInBetween(const DeviceJob& spec) {
  return spec.evaluation != nullptr && spec.training.evaluation.every > 0;
}

Bytes PredictedPeak(const DeviceJob& spec) {
  Bytes peak = 0;
  for (const Program* program : ProgramsOf(spec)) {
    for (const DeviceProgram& device : program->devices) {
      if (device.device == spec.device) peak = std::max(peak, PeakMemory(device));
    }
  }
  return peak;
}

std::vector<int> NeighboursOf(const DeviceJob& spec) {
  std::set<int> neighbours;
  for (const Program* program : ProgramsOf(spec)) {
    for (const Channel& channel : program->channels) {
      if (channel.source == spec.device) neighbours.insert(channel.target.value());
      if (channel.target == spec.device) neighbours.insert(channel.source.value());
    }
  }
  neighbours.erase(spec.device.value());
  return {neighbours.begin(), neighbours.end()};
}

std::vector<int> PeersOf(const DeviceJob& spec) {
  const std::vector<int> neighbours = NeighboursOf(spec);
  std::set<int> peers(neighbours.begin(), neighbours.end());
  for (const Program* program : ProgramsOf(spec)) {
    for (const Reduction& reduction : program->reductions) {
      const auto& devices = reduction.devices;
      if (std::find(devices.begin(), devices.end(), spec.device) == devices.end()) continue;
      for (DeviceId device : devices) peers.insert(device.value());
    }
  }
  if (EvaluatesInBetween(spec)) {
    for (const DeviceProgram& device : spec.program->devices) peers.insert(device.device.value());
  }
  peers.erase(spec.device.value());
  return {peers.begin(), peers.end()};
}

std::vector<std::vector<int>> CollectivesOf(const DeviceJob& spec) {
  std::set<std::vector<int>> lists;
  for (const Program* program : ProgramsOf(spec)) {
    for (const Reduction& reduction : program->reductions) {
      if (reduction.gradient_norm) continue;  // One number, by host memory.
      std::vector<int> devices;
      for (DeviceId device : reduction.devices) devices.push_back(device.value());
      lists.insert(std::move(devices));
    }
  }
  return {lists.begin(), lists.end()};
}

absl::Status CheckLengths(const DeviceJob& spec) {
  if (spec.lengths.empty()) return absl::OkStatus();
  if (spec.program->asynchronous) {
    return absl::InvalidArgumentError(
        "lengths: in an asynchronous program the passes of several steps run beside each other");
  }
  for (size_t i = 0; i < spec.lengths.size(); ++i) {
    const auto wrong = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat("lengths[", i, "]: ", what));
    };
    const LengthSpec& length = spec.lengths[i];
    if (length.graph == nullptr || length.program == nullptr ||
        (length.evaluation == nullptr) != (spec.evaluation == nullptr))
      return wrong("its graph or a program is missing");
    if (!length.program->training ||
        (length.evaluation != nullptr && length.evaluation->training) ||
        !HasSameStages(*length.program, *spec.program) ||
        (length.evaluation != nullptr && !HasSameStages(*length.evaluation, *spec.evaluation)))
      return wrong("its programs are not those of the job for other samples");
    if (spec.evaluation == nullptr) continue;
    for (size_t t = 0; t < spec.graph->totals().values.size(); ++t) {
      if (length.graph->meta(TotalId(t)) != spec.graph->meta(TotalId(t)))
        return wrong(
            "what its loss divides by has another shape, so that there is no sum of it "
            "over the evaluation data");
    }
  }
  return absl::OkStatus();
}

}  // namespace stagewright
