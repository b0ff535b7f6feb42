// A DeviceMover that has another do everything, for tests that watch or change some of it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker_daemon/transport/arranged/device_mover.h"

namespace stagewright::testing {

class DelegatingMover : public DeviceMover {
 public:
  explicit DelegatingMover(std::unique_ptr<DeviceMover> mover) : mover_(std::move(mover)) {}

  absl::StatusOr<std::string> MakeNote() override { return mover_->MakeNote(); }
  absl::Status Connect(const MoverGroup& group, const std::string& note,
                       absl::Time deadline) override {
    return mover_->Connect(group, note, deadline);
  }
  absl::Status OpenCollectives(const std::vector<std::vector<int>>& lists,
                               absl::Time deadline) override {
    return mover_->OpenCollectives(lists, deadline);
  }
  std::shared_ptr<void> Mark() override { return mover_->Mark(); }
  bool Passed(const std::shared_ptr<void>& mark) override { return mover_->Passed(mark); }
  absl::StatusOr<uint64_t> Start(const std::vector<MoverPart>& parts) override {
    return mover_->Start(parts);
  }
  absl::StatusOr<std::vector<uint64_t>> Ended() override { return mover_->Ended(); }
  void InterruptAt(absl::Time when) override { mover_->InterruptAt(when); }
  void Stop() override { mover_->Stop(); }

 private:
  const std::unique_ptr<DeviceMover> mover_;
};

}  // namespace stagewright::testing
