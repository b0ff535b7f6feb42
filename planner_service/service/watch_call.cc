#include "planner_service/service/watch_call.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/wire/job_state.h"
#include "common/wire/limits.h"
#include "planner_service/service/message_queue.h"

namespace stagewright {
namespace {

class WatchCall : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  WatchCall(JobManager* jobs, OpenStreams* streams, WatchResponses* responses,
            const std::string& owner)
      : jobs_(jobs), streams_(streams), responses_(responses), queue_(this) {
    stream_ = streams_->Add(
        [this] { queue_.Abort(ToGrpc(absl::UnavailableError("the planner is shutting down"))); },
        owner);
  }

  void Refuse(const absl::Status& why) { queue_.Close(ToGrpc(why)); }

  void Start(grpc::ByteBuffer encoded) {
    v1::WatchJobRequest request;
    const grpc::Status read =
        grpc::SerializationTraits<v1::WatchJobRequest>::Deserialize(&encoded, &request);
    if (!read.ok()) return queue_.Close(read);
    name_ = request.name();
    after_version_ = request.after_version();
    if (const absl::Status limits = CheckLimits(request); !limits.ok()) return Refuse(limits);
    auto watch = jobs_->Watch(
        request.name(), [this](JobWatches::Snapshot job) { Show(std::move(job)); }, after_version_);
    if (watch.ok()) {
      watch_ = *watch;
    } else {
      queue_.Close(ToGrpc(watch.status()));
    }
  }

  void OnWriteDone(bool ok) override { queue_.OnWriteDone(ok); }
  void OnCancel() override { queue_.Abort(grpc::Status::CANCELLED); }
  void OnDone() override {
    streams_->Remove(stream_);
    jobs_->Unwatch(watch_);
    delete this;
  }

 private:
  void Show(const JobWatches::Snapshot& job) {
    if (job == nullptr)  // Before its end could be shown.
      return Refuse(WithResource(absl::NotFoundError(absl::StrCat(name_, " was deleted")), name_));
    // A slow reader sees the latest state, not every step.
    if (job->version() > after_version_) queue_.Push(responses_->Of(job), /*replace_waiting=*/true);
    if (IsTerminal(job->state())) queue_.Close(grpc::Status::OK);
  }

  JobManager* const jobs_;
  OpenStreams* const streams_;
  WatchResponses* const responses_;
  std::string name_;
  int64_t after_version_ = 0;
  int64_t stream_ = 0;
  int64_t watch_ = 0;
  MessageQueue<WatchCall, grpc::ByteBuffer> queue_;
};

}  // namespace

grpc::ByteBuffer WatchResponses::Of(const JobWatches::Snapshot& job) {
  absl::MutexLock lock(&mutex_);
  if (last_ != job) {
    v1::WatchJobResponse response;
    *response.mutable_job() = *job;
    const grpc::Slice slice(response.SerializeAsString());
    bytes_ = grpc::ByteBuffer(&slice, 1);
    last_ = job;
  }
  return bytes_;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatch(JobManager* jobs, OpenStreams* streams,
                                                       WatchResponses* responses,
                                                       const std::string& owner,
                                                       const grpc::ByteBuffer& request) {
  auto* call = new WatchCall(jobs, streams, responses, owner);
  if (const absl::Status room = streams->CheckRoom(owner); room.ok()) {
    call->Start(request);
  } else {
    call->Refuse(room);
  }
  return call;
}

}  // namespace stagewright
