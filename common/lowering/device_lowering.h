// The program of one device: its passes in the order of its compute lane, messages around them, and
// updates after them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/ids.h"
#include "common/lowering/compute_order.h"
#include "common/lowering/lowering_context.h"
#include "common/lowering/memory_ledger.h"
#include "common/program/program.h"

namespace stagewright {

// By slot, indices of the body of the program that runs it. Every device writes only the entries of
// its own slots, so all devices share them.
struct PassIndices {
  explicit PassIndices(size_t slots) : forward(slots, -1), backward(slots, -1), last(slots, -1) {}
  std::vector<int32_t> forward;
  std::vector<int32_t> backward;  // The pass that makes gradients.
  std::vector<int32_t> last;      // The pass that makes those of parameters.
};

// Writes one program; use it once.
class DeviceLowering {
 public:
  // Arguments outlive the object.
  DeviceLowering(LoweringContext& context, DeviceId device, PassIndices& passes);

  DeviceProgram Lower(const std::vector<Task>& tasks);
  // An asynchronous program. REQUIRES: the device has one stage.
  DeviceProgram Lower(const TaskSections& sections);

 private:
  void WriteSection(const std::vector<Task>& tasks, std::vector<ProgramAction>& section);
  int32_t Add(ProgramAction action);
  void AddReceivesAfter(int32_t done);
  void AddReceives(int32_t c, int32_t done);
  void AddCompute(int32_t c);
  void AddSends(int32_t c);
  void AddLocalDependencies();
  void AddUpdates();
  void AddEarlyUpdate(StageId stage);
  void AddGathers();
  std::vector<std::vector<int32_t>> AddReductions();
  void AddSums(std::vector<std::vector<int32_t>>& before_step);
  int32_t AddSum(const MicroBatchSum& sum, size_t reduction, int32_t pass);
  void AwaitSums(const std::map<int32_t, std::vector<int32_t>>& sums);
  void KeepShares(const std::vector<int32_t>& sums);
  SampleRange Shifted(const Task& task, SampleRange samples) const;

  LoweringContext& context_;
  PassIndices& passes_;
  MemoryLedger ledger_;
  DeviceProgram program_;
  std::vector<StageId> stages_;         // On this device, ascending.
  bool updates_follow_ = false;         // Every backward pass is followed by its update.
  std::vector<int32_t> last_backward_;  // By stage; -1 if it has none here.
  std::vector<Bytes> kept_;             // By stage: shares of sums that the update releases.

  // The section that is being written.
  const std::vector<Task>* tasks_ = nullptr;
  std::vector<ProgramAction>* section_ = nullptr;
  std::vector<int32_t> compute_index_;          // Task -> index of the section.
  std::vector<int32_t> post_after_;             // Task -> task that ends before its receives.
  std::vector<std::vector<int32_t>> receives_;  // Task -> indices of the section.
};

}  // namespace stagewright
