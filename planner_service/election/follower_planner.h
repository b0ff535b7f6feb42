// The planning calls that a follower answers by itself.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "planner_service/intake/bounded_service.h"
#include "planner_service/service/door.h"
#include "planner_service/store/store.h"

namespace stagewright {

// Plans as the leader does, with threads of its own, and keeps no answer: it does not hear of new
// measurements. Thread-safe.
class FollowerPlanner {
 public:
  // Measurements are read in the store, anew for each answer.
  static std::unique_ptr<FollowerPlanner> Make(int threads, int queue, std::shared_ptr<Door> door,
                                               std::unique_ptr<Store> store);
  virtual ~FollowerPlanner() = default;

  // The methods that FollowersAnswer names, for those whom the door lets in; all others are left to
  // a generic service. The planner outlives it.
  virtual std::unique_ptr<grpc::Service> MakeService(const RequestBounds& bounds) = 0;
  // Ends streams, so that the server may end.
  virtual void CloseStreams() = 0;
};

}  // namespace stagewright
