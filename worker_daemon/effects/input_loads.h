// Which inputs the passes of a device load, in their order, which its program says before they run.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "worker_daemon/effects/input_prefetch.h"
#include "worker_daemon/effects/step_data.h"
#include "worker_daemon/step/device_plan.h"

namespace stagewright {

// Loads of whole passes: what totals of a batch are worked out from is not among them, nor is it
// known here that a pass of a batch that is filled up compares less with its prediction.
class InputLoads {
 public:
  InputLoads(const Graph& graph, const Program& program, const DevicePlan& plan);

  // Those of a step from its begin on, which `begins_run` unless it goes on with the step before it
  // without a flush; then those of the step after it, as far as their samples are known.
  std::vector<InputLoad> From(const StepInput& input, bool begins_run) const;

  // The first ones of a run whose first step has these samples.
  std::vector<InputLoad> OfRun(std::span<const int64_t> samples) const;

  // How many buffers of which size hold what is gathered `ahead` of each input and what a pass has
  // taken last.
  std::map<Bytes, int32_t> Buffers(const Graph& graph, int32_t ahead) const;

 private:
  using Batch = std::shared_ptr<const std::vector<int64_t>>;

  // Samples as in the actions of a section: from mini_batch on they are of the next step.
  struct Load {
    InputId input;
    SampleRange samples;
  };
  using Section = std::vector<Load>;

  // Loads of a section whose step has the samples `now`, and the next one `next`; null: unknown.
  void Append(const Section& section, const Batch& now, const Batch& next,
              std::vector<InputLoad>& loads) const;

  const int64_t mini_batch_;
  const bool has_sections_;
  Section prologue_, body_, epilogue_;
};

}  // namespace stagewright
