// A measurement of operators that the planner asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/daemon/devices.h"

namespace stagewright {

class ProfileRun {
 public:
  using Report = std::function<void(v1::ConnectRequest)>;

  // Measures on a thread of its own, and then reports once, from there. Begins when the one
  // `before` on the device has ended, which is stopped.
  ProfileRun(v1::ProfileOperators request, OfferedDevice device, int threads, Report report,
             std::unique_ptr<ProfileRun> before = nullptr);
  // Stops measuring and waits for the thread, which reports that it was stopped.
  ~ProfileRun();

  // Does not wait: the thread reports that it was stopped when it comes to it.
  void Stop() { stopped_ = true; }

  int64_t request() const { return request_.request(); }

 private:
  void Run();

  const v1::ProfileOperators request_;
  const OfferedDevice device_;
  const int threads_;
  const Report report_;
  std::unique_ptr<ProfileRun> before_;  // The thread's.
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

}  // namespace stagewright
