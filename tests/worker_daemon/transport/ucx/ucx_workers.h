// UCX workers of this process for tests, which drive them from their own thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker_daemon/transport/ucx/ucx_worker.h"

namespace stagewright::testing {

inline std::unique_ptr<UcxWorker> MakeUcxWorker(const std::string& tls = "posix,self") {
  auto worker = UcxWorker::Create({.tls = tls});
  EXPECT_EQ(worker.status(), absl::OkStatus());
  return *std::move(worker);
}

// Calls `step` until `done`; false if that takes longer than a test waits.
inline bool StepUntil(const std::function<void()>& step, const std::function<bool()>& done,
                      absl::Duration patience = absl::Seconds(20)) {
  const absl::Time deadline = absl::Now() + patience;
  while (!done()) {
    if (absl::Now() > deadline) return false;
    step();
  }
  return true;
}

inline void Progress(const std::vector<UcxWorker*>& workers) {
  for (UcxWorker* worker : workers) ucp_worker_progress(worker->get());
}

}  // namespace stagewright::testing
