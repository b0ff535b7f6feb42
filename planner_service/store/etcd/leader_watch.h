// Hears from etcd who leads, as soon as that changes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock/steady_wait.h"
#include "planner_service/store/etcd/etcd_client.h"

namespace stagewright {

// Reads who leads and watches on from the next revision; begins anew when the stream breaks, when
// etcd cancels it (what it is to tell was compacted), when the member loses touch with the cluster,
// and when it is silent for `patience` twice, asked in between whether it is there. Thread-safe.
class LeaderWatch {
 public:
  LeaderWatch(std::shared_ptr<EtcdClient> client, const std::string& prefix,
              absl::Duration patience = absl::Seconds(1));
  ~LeaderWatch();

  // What LeaderOf says; nothing while etcd is not heard: then it has to be asked.
  std::optional<std::string> leader() const;

  // Until leader() is another than at the last return, or Wake, and for at most so long.
  void AwaitChange(absl::Duration at_most);
  void Wake();

 private:
  class Stream;
  void Run();
  void Hear();
  void Set(std::optional<std::string> leader);

  const std::shared_ptr<EtcdClient> client_;
  const std::string key_;
  const absl::Duration patience_;
  SteadyNotification stop_;
  mutable absl::Mutex mutex_;
  std::optional<std::string> leader_ ABSL_GUARDED_BY(mutex_);
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;  // The present one.
  std::thread thread_;
};

}  // namespace stagewright
