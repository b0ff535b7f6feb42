// A worker's part in one probe of links: its devices' transports and threads. Made when the planner
// asks; it ends when the next one comes, the planner says so, or the worker gets a job.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/daemon/devices.h"
#include "worker_daemon/transport/routing/routing_transport.h"

namespace stagewright {

class LinkProbeRun {
 public:
  using Reporter = std::function<void(v1::ConnectRequest)>;

  // Begins at once; `devices` are those of the message, in its order. Reports ProbeReady, and
  // LinksProbed in the end, whatever happened; nothing after End. Waits, on its own thread, for the
  // one `before`, which is ended.
  LinkProbeRun(v1::ProbeLinks message, std::vector<OfferedDevice> devices, Reporter report,
               std::unique_ptr<LinkProbeRun> before = nullptr);
  // Ends it and waits for its threads, moments.
  ~LinkProbeRun();
  // Does not wait.
  void End();

  int64_t probe() const { return message_.probe(); }
  // The planner's answer to ProbeReady.
  void Connect(v1::ProbePeers peers);
  // It ends soon, and says so.
  void Interrupt(const std::string& why);

 private:
  void Loop();
  absl::Status Prepare();
  absl::StatusOr<v1::LinksProbed> Measure();
  absl::StatusOr<v1::DeviceProbe> MeasureDevice(size_t index,
                                                const std::vector<Transport::Peer>& addresses);
  void Report(v1::ConnectRequest message);
  bool MayGoOn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !peers_.devices().empty() || !interrupted_.ok();
  }

  const v1::ProbeLinks message_;
  const std::vector<OfferedDevice> devices_;
  const Reporter report_;
  std::unique_ptr<LinkProbeRun> before_;  // The thread's.
  absl::Mutex mutex_;
  v1::ProbePeers peers_ ABSL_GUARDED_BY(mutex_);
  absl::Status interrupted_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<RoutingTransport>> transports_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace stagewright
