// The worker's stream to the planner: connects, registers, and connects again whenever the stream
// ends, after pauses that grow while no planner takes the worker.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/channel/channel.h"
#include "common/log/log.h"
#include "stagewright/v1/worker_service.grpc.pb.h"
#include "worker_daemon/daemon/outbox.h"

namespace stagewright {

class PlannerLink {
 public:
  struct Callbacks {
    // Makes the first message of a stream.
    std::function<v1::Register()> registration;
    // A message from the planner. Called on the link's thread; must not block for long.
    std::function<void(const v1::ConnectResponse&)> on_message;
    // The stream is up (true: registered) or down.
    std::function<void(bool)> on_connected;
    // The planner lacks steps of the job: there were more than could be sent. Called on a thread of
    // the link, and only if set.
    std::function<void(const std::string& job)> on_lacking_steps = nullptr;
  };

  // Errors of OpenChannel. Connects on a thread of its own.
  static absl::StatusOr<std::unique_ptr<PlannerLink>> Open(const std::string& address,
                                                           const ChannelSecurity& security,
                                                           Outbox* outbox, Callbacks callbacks);
  // Ends the stream.
  ~PlannerLink();

 private:
  using Stream = grpc::ClientReaderWriter<v1::ConnectRequest, v1::ConnectResponse>;

  PlannerLink(std::string address, ChannelSecurity security,
              const std::shared_ptr<grpc::Channel>& channel, Outbox* outbox, Callbacks callbacks);
  void Run();
  // One stream from beginning to end; returns why it ended. `registered`: the planner took the
  // worker.
  grpc::Status RunStream(bool* registered);
  void WriteLoop(Stream* stream, std::atomic<bool>* ended);
  void Log(LogLevel level, const std::string& line);

  const std::string address_;
  const ChannelSecurity security_;
  Outbox* const outbox_;
  const Callbacks callbacks_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::atomic<int64_t> heartbeat_interval_ns_;
  absl::Mutex mutex_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // The present stream's.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::string last_logged_;
  std::thread thread_;
};

}  // namespace stagewright
