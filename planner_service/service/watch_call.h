// JobService.WatchJob: a stream of a job's versions. Streams that nobody reads cost a message each,
// not one per version.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <string>

#include "absl/synchronization/mutex.h"
#include "planner_service/lifecycle/job_manager.h"
#include "planner_service/service/rpc.h"

namespace stagewright {

// The encoded WatchJobResponse of a snapshot, made once for all watchers that are told of it one
// after another. Thread-safe.
class WatchResponses {
 public:
  // Shares its bytes with the others of the same snapshot.
  grpc::ByteBuffer Of(const JobWatches::Snapshot& job);

 private:
  absl::Mutex mutex_;
  JobWatches::Snapshot last_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer bytes_ ABSL_GUARDED_BY(mutex_);
};

// Watches what `request`, an encoded WatchJobRequest, asks for, until the job has ended, the client
// goes away or `streams` closes. An `owner`'s watches are bounded together. All outlive the stream,
// which deletes itself.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatch(JobManager* jobs, OpenStreams* streams,
                                                       WatchResponses* responses,
                                                       const std::string& owner,
                                                       const grpc::ByteBuffer& request);

}  // namespace stagewright
