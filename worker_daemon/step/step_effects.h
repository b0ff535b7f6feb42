// What the actions of a program do on a device, for a StepMachine, which says when.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker_daemon/step/step_action.h"

namespace stagewright {

// None of its functions throws.
class StepEffects {
 public:
  virtual ~StepEffects() = default;

  // Runs a compute action, on the thread that called StepMachine::Run.
  virtual absl::Status Compute(const StepAction& action) = 0;

  // Starts sends and receives, on any thread, and ends each with StepMachine::End.
  virtual void StartTransfers(const std::vector<StepAction>& actions) = 0;

  // On the compute lane, which waits for `ready`: moves transfers meanwhile. May return before.
  virtual void MoveTransfers(absl::FunctionRef<bool()> ready) = 0;

  // Runs a collective, on a thread of the machine.
  virtual absl::Status RunCollective(const StepAction& action) = 0;

  // Makes transfers and collectives under way end soon. Called once, by the first failure; it must
  // not call the machine.
  virtual void AbortTransfers(const absl::Status& status) = 0;

  // Follows the name of an action in the message of its failure; may be "".
  virtual std::string Details(const StepAction& action) const = 0;
};

}  // namespace stagewright
