// Which workers are connected, what devices they have, and which job holds each device.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/registry/link_table.h"
#include "planner_service/registry/quarantine.h"
#include "planner_service/registry/registered_device.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// Thread-safe.
class WorkerRegistry {
 public:
  // Sends a message down a worker's stream; false once the stream is closed. Must not block or call
  // back.
  using Sink = std::function<bool(const v1::ConnectResponse&)>;

  // Adds a worker. INVALID_ARGUMENT: no name, no device, bad device fields. ALREADY_EXISTS: a live
  // worker has the name. Returns the session: later calls of an older session have no effect. An
  // availability that an operator set holds on for the same process, which is told again.
  absl::StatusOr<int64_t> Register(const v1::Register& message, Sink sink, absl::Time now);
  // Forgets the worker if `session` is its present one. Devices held by jobs are gone with it.
  bool Unregister(const std::string& worker, int64_t session);
  // The same, unless the worker was heard since `deadline`: it may be, after Silent has named it.
  bool UnregisterSilent(const std::string& worker, int64_t session, absl::Time deadline);
  // The worker was heard. False if the session is over: its stream must end, so that it registers
  // again.
  bool Heartbeat(const std::string& worker, int64_t session, absl::Time now);
  // Workers not heard of since `deadline`.
  std::vector<std::pair<std::string, int64_t>> Silent(absl::Time deadline) const;

  // The planner itself stood still for so long before `now`: nobody was silent meanwhile, and no
  // run late to end.
  void Forgive(absl::Duration stood_still, absl::Time now);

  // Free devices or all, by (worker, index).
  std::vector<RegisteredDevice> Devices(bool free_only) const;
  // Gives all of `devices` (qualified names) to `job`, or none: FAILED_PRECONDITION names the first
  // that is gone, held by another job, not yet left by a run before, or, unless the job holds it
  // already, not available.
  absl::Status Allocate(const std::string& job, const std::vector<std::string>& devices);
  // The same for a run that goes on on them: they need not be available.
  absl::Status Regain(const std::string& job, const std::vector<std::string>& devices);
  // Devices of the job that no run has used are free at once, but for those to `keep`.
  void Release(const std::string& job, const std::vector<std::string>& keep = {});

  // The job's run of this generation is told to end: the devices that it `used` are free when their
  // workers say that it has. What else the job held is free at once, but for those to `keep`.
  void EndRun(const std::string& job, int64_t generation, const std::vector<std::string>& used,
              const std::vector<std::string>& keep = {});
  // A worker that comes back says that it has not ended this run yet.
  void NoteEnding(const std::string& worker, const v1::RunningJob& run);
  // The worker has ended the run.
  void Ended(const std::string& worker, const std::string& job, int64_t generation);
  // Workers that have not ended their runs of the job.
  std::vector<std::string> Ending(const std::string& job) const;
  // The same of all jobs that have any.
  std::map<std::string, std::vector<std::string>> Ending() const;

  // Whether new jobs get the worker's devices; OPEN also ends their quarantine. The worker is told.
  // The answer is the worker as it was then, which may end next. NOT_FOUND: it is not connected.
  absl::StatusOr<v1::Worker> SetAvailability(const std::string& worker,
                                             v1::WorkerAvailability availability);
  // The worker drains, to end when it has nothing to do any more.
  void NoteLeaving(const std::string& worker);
  bool Draining(const std::string& worker) const;
  // Those that leave and have nothing to do any more, once each.
  std::vector<std::string> TakeIdleLeavers();

  // A device failed a job: after `enough` times it is kept from jobs for a while (quarantine.h).
  // Until when it is now; the infinite past if it is not.
  absl::Time NoteFailure(const std::string& device, const std::string& why, absl::Time now,
                         int enough = kFailuresToQuarantine);
  // Ends what quarantine is over, and finds devices that runs do not leave (kRunsEndWithin).
  void Tick(absl::Time now);

  // False if the worker is not connected.
  bool Send(const std::string& worker, const v1::ConnectResponse& message) const;
  bool Connected(const std::string& worker) const;
  // Register.keeps_graphs; false if it is not connected.
  bool KeepsGraphs(const std::string& worker) const;
  std::vector<v1::Worker> List() const;
  // One of them; NOT_FOUND if it is not connected.
  absl::StatusOr<v1::Worker> Get(const std::string& worker) const;

  // What was measured of the links between workers, connected or not.
  LinkTable Links() const;
  void SetLinks(LinkTable links);

 private:
  struct Held {
    std::string job;         // Empty if free.
    std::string ending;      // Job whose run has not ended there; empty if none.
    int64_t generation = 0;  // The number of that run.
    absl::Time ends_by = absl::InfiniteFuture();  // Set by the next Tick.
    bool stuck = false;                           // It has not by then.
  };
  struct Worker {
    v1::Register registration;
    std::vector<Held> held;  // By device.
    v1::WorkerAvailability availability = v1::WORKER_AVAILABILITY_OPEN;
    bool leaving = false;
    bool left = false;  // It was told that it may go.
    Sink sink;
    int64_t session = 0;
    absl::Time last_heard;
  };
  // What an operator told a worker's process, which may have missed it.
  struct Told {
    int64_t process = 0;
    v1::WorkerAvailability availability = v1::WORKER_AVAILABILITY_OPEN;
  };
  // A device of a connected worker, and what holds it.
  struct Found {
    const Worker* worker;
    Held* held;
  };

  // What the worker was told before its stream broke, if it says otherwise.
  void TellAgain(Worker& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Found> Find(const std::string& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Available(const Worker& worker, const std::string& device) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Give(const std::string& job, const std::vector<std::string>& devices,
                    bool must_be_available);
  v1::Worker Describe(const Worker& worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  Quarantine quarantine_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Told> told_ ABSL_GUARDED_BY(mutex_);  // By worker.
  LinkTable links_ ABSL_GUARDED_BY(mutex_);
  int64_t next_session_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace stagewright
