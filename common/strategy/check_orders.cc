// Explicit compute orders: what CheckStrategy asks of them.
#include "common/strategy/check_orders.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/strategy/strategy.h"

namespace stagewright {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat("C4: orders: ", args...));
}

constexpr std::array<const char*, static_cast<size_t>(kLastPass) + 1> kNames = {
    "forward", "recompute", "backward", "backward input", "backward weight"};

// Steps done so far of each pass, of one stage on one device.
struct Progress {
  std::array<int64_t, kNames.size()> done = {};
  int64_t Of(Pass pass) const { return done[static_cast<size_t>(pass)]; }
};

class Checker {
 public:
  Checker(const Graph& graph, const Strategy& strategy) : strategy_(strategy) {
    for (const Stage& stage : strategy.stages) {
      has_backward_.push_back(HasBackward(graph, stage));
      for (DeviceId device : stage.devices) used_.push_back(device);
    }
    std::sort(used_.begin(), used_.end());
    used_.erase(std::unique(used_.begin(), used_.end()), used_.end());
    whole_.assign(strategy.stages.size(), false);
    halves_.assign(strategy.stages.size(), false);
    reached_.assign(strategy.stages.size(), 0);
  }

  absl::Status Check() {
    const std::vector<DeviceOrder>& orders = strategy_.orders;
    for (size_t i = 0; i < std::max(orders.size(), used_.size()); ++i) {
      if (i < orders.size() && i > 0 && orders[i].device <= orders[i - 1].device) {
        return Broken("device ", orders[i].device.value(), " comes after device ",
                      orders[i - 1].device.value(), "; each device has one, by id");
      }
      if (i >= orders.size() || (i < used_.size() && used_[i] < orders[i].device))
        return Broken("device ", used_[i].value(), " runs a stage and has none");
      if (i >= used_.size() || orders[i].device < used_[i])
        return Broken("device ", orders[i].device.value(), " has one and runs no stage");
      RETURN_IF_ERROR(CheckDevice(orders[i]));
    }
    return CheckInFlight();
  }

 private:
  int64_t MicroBatches(StageId stage) const {
    return strategy_.mini_batch / strategy_.stages[stage.index()].micro_batch;
  }

  absl::Status CheckDevice(const DeviceOrder& order) {
    std::vector<Progress> progress(strategy_.stages.size());
    for (size_t i = 0; i < order.steps.size(); ++i) {
      const absl::Status status = CheckStep(order, order.steps[i], progress);
      if (!status.ok()) {
        return Broken("device ", order.device.value(), ", step ", i, ": ", status.message());
      }
    }
    return CheckComplete(order, progress);
  }

  // The message is about the step alone.
  absl::Status CheckStep(const DeviceOrder& order, const ComputeStep& step,
                         std::vector<Progress>& progress) {
    const auto bad = [](const auto&... args) {
      return absl::FailedPreconditionError(absl::StrCat(args...));
    };
    if (step.pass > kLastPass) return bad("pass ", static_cast<int>(step.pass), " is not known");
    if (!step.stage.valid() || step.stage.index() >= strategy_.stages.size())
      return bad("stage ", step.stage.value(), " does not exist");
    const size_t s = step.stage.index();
    const Stage& stage = strategy_.stages[s];
    const char* name = kNames[static_cast<size_t>(step.pass)];
    const std::string what =
        absl::StrCat(name, " of stage ", s, ", micro-batch ", step.index, ": ");
    if (std::find(stage.devices.begin(), stage.devices.end(), order.device) == stage.devices.end())
      return bad(what, "the stage is not on this device");
    if (step.index < 0 || step.index >= MicroBatches(step.stage))
      return bad(what, "the stage has micro-batches 0 to ", MicroBatches(step.stage) - 1);
    if (step.pass != Pass::kForward && !has_backward_[s])
      return bad(what, "the stage has no backward pass");
    if (step.pass == Pass::kRecompute && !stage.recompute)
      return bad(what, "the stage does not recompute");
    if (step.pass == Pass::kBackward) whole_[s] = true;
    if (step.pass > Pass::kBackward) halves_[s] = true;
    if (whole_[s] && halves_[s]) return bad(what, "the stage has whole and split backward passes");
    Progress& at = progress[s];
    const int64_t due = at.Of(step.pass);
    if (step.index < due) return bad(what, "it is there twice");
    if (step.index > due) return bad(what, "it comes before that of micro-batch ", due);
    const auto missing = [&](Pass before) { return at.Of(before) <= step.index; };
    if (step.pass != Pass::kForward && missing(Pass::kForward))
      return bad(what, "it comes before the forward pass");
    const bool gradients = step.pass == Pass::kBackward || step.pass == Pass::kBackwardInput;
    if (gradients && stage.recompute && missing(Pass::kRecompute))
      return bad(what, "it comes before the recomputation");
    if (step.pass == Pass::kBackwardWeight && missing(Pass::kBackwardInput))
      return bad(what, "it comes before the input half");
    ++at.done[static_cast<size_t>(step.pass)];
    const int64_t micro_batches_in_flight =
        at.Of(Pass::kForward) - at.Of(Pass::kBackward) - at.Of(Pass::kBackwardInput);
    reached_[s] = std::max(reached_[s], micro_batches_in_flight);
    return absl::OkStatus();
  }

  absl::Status CheckComplete(const DeviceOrder& order,
                             const std::vector<Progress>& progress) const {
    for (size_t s = 0; s < strategy_.stages.size(); ++s) {
      const Stage& stage = strategy_.stages[s];
      if (std::find(stage.devices.begin(), stage.devices.end(), order.device) ==
          stage.devices.end()) {
        continue;
      }
      std::vector<Pass> due = {Pass::kForward};
      if (has_backward_[s]) {
        if (stage.recompute) due.push_back(Pass::kRecompute);
        due.push_back(halves_[s] ? Pass::kBackwardInput : Pass::kBackward);
        if (halves_[s]) due.push_back(Pass::kBackwardWeight);
      }
      const int64_t all = MicroBatches(StageId(static_cast<int64_t>(s)));
      for (Pass pass : due) {
        if (progress[s].Of(pass) == all) continue;
        return Broken("device ", order.device.value(), ": ", kNames[static_cast<size_t>(pass)],
                      " of stage ", s, ", micro-batch ", progress[s].Of(pass), " is missing");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckInFlight() const {
    for (size_t s = 0; s < strategy_.stages.size(); ++s) {
      const Stage& stage = strategy_.stages[s];
      const int64_t reached = reached_[s] * stage.micro_batch;
      if (has_backward_[s] && stage.schedule.in_flight != reached) {
        return Broken("stage ", s, " states ", stage.schedule.in_flight,
                      " samples in flight and its order reaches ", reached);
      }
    }
    return absl::OkStatus();
  }

  const Strategy& strategy_;
  std::vector<bool> has_backward_;  // By stage, as all below.
  std::vector<bool> whole_, halves_;
  std::vector<int64_t> reached_;  // Micro-batches in flight.
  std::vector<DeviceId> used_;    // By id.
};

}  // namespace

absl::Status CheckOrders(const Graph& graph, const Strategy& strategy) {
  if (strategy.orders.empty()) return absl::OkStatus();
  if (strategy.asynchronous)
    return Broken("an asynchronous strategy has none; its stages follow their schedules");
  return Checker(graph, strategy).Check();
}

}  // namespace stagewright
