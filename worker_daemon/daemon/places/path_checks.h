// Looks whether jobs could read and write where they say, before anybody looks for a plan.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "stagewright/v1/worker_service.pb.h"
#include "worker_daemon/daemon/places/places.h"

namespace stagewright {

// What the job would fail with here, as far as names, rights and the owner of its output say it: no
// contents but an artifact's manifest are read, nothing is made. Names field, path and reason.
// PERMISSION_DENIED as CheckReads; NOT_FOUND, INVALID_ARGUMENT or FAILED_PRECONDITION; errors of
// Artifacts::Find, CANCELLED once it is given up among them.
absl::Status CheckPlaces(const Places& places, const v1::CheckPaths& message,
                         GivenUp given_up = nullptr);

// Answers one message after the other, on a thread of its own. A file system or store that does not
// answer keeps those behind it waiting, and nobody else.
class PathChecks {
 public:
  using Reporter = std::function<void(v1::ConnectRequest)>;

  // `report` may be called from any thread until the end of its life.
  PathChecks(Places places, Reporter report);
  // Does not wait.
  ~PathChecks();

  // If too many wait, the oldest are dropped: their plans are long found.
  void Add(v1::CheckPaths message);

 private:
  // Outlives the object while a file system does not answer.
  struct Shared {
    Places places;
    Reporter report;
    absl::Mutex mutex;
    std::deque<v1::CheckPaths> waiting ABSL_GUARDED_BY(mutex);
    bool closing ABSL_GUARDED_BY(mutex) = false;
  };
  static void Loop(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace stagewright
