#include "planner_service/service/job_rpc.h"

#include <utility>

#include "common/log/log.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/service/message_queue.h"

namespace stagewright {
namespace {

// One worker's stream. The first message registers; the end of the stream, however it comes, means
// the worker is lost.
class WorkerStream : public grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse> {
 public:
  WorkerStream(JobManager* jobs, Profiling* profiling, WorkerRegistry* registry, LinkProber* links,
               OpenStreams* streams)
      : jobs_(jobs),
        profiling_(profiling),
        registry_(registry),
        links_(links),
        streams_(streams),
        queue_(std::make_shared<Queue>(this)) {
    stream_ = streams_->Add([queue = queue_] {
      queue->Abort(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the planner is shutting down"));
    });
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Leave("its connection ended");
      queue_->Abort(grpc::Status::OK);
      return;
    }
    if (absl::Status status = Take(); !status.ok()) {
      Leave(std::string(status.message()));
      queue_->Close(ToGrpc(status));
      return;
    }
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override { queue_->OnWriteDone(ok); }
  void OnCancel() override { queue_->Abort(grpc::Status::CANCELLED); }
  void OnDone() override {
    Leave("its connection ended");
    streams_->Remove(stream_);
    delete this;
  }

 private:
  using Queue = MessageQueue<WorkerStream, v1::ConnectResponse>;

  absl::Status Take() {
    if (incoming_.has_register_()) return Enter(incoming_.register_());
    if (worker_.empty())
      return absl::FailedPreconditionError("the first message of a worker must be `register`");
    if (!registry_->Heartbeat(worker_, session_, absl::Now())) {
      return absl::UnavailableError(
          absl::StrCat("worker ", worker_, " was silent for too long; it must register again"));
    }
    if (incoming_.has_operators_profiled()) {
      profiling_->OnProfiled(worker_, incoming_.operators_profiled());
    } else if (incoming_.has_probe_ready()) {
      links_->OnReady(worker_, incoming_.probe_ready(), absl::Now());
    } else if (incoming_.has_links_probed()) {
      links_->OnProbed(worker_, incoming_.links_probed(), absl::Now());
    } else {
      jobs_->OnMessage(worker_, incoming_);
    }
    return absl::OkStatus();
  }

  absl::Status Enter(const v1::Register& message) {
    if (!worker_.empty())
      return absl::FailedPreconditionError("this stream has registered a worker already");
    // The queue refuses messages once the stream is closed, so the registry may keep it longer than
    // the stream lives.
    auto session = jobs_->Register(message, [queue = queue_](const v1::ConnectResponse& response) {
      return queue->Push(response);
    });
    if (!session.ok()) return session.status();
    worker_ = message.worker();
    session_ = *session;
    links_->OnRegistered(message, absl::Now());
    return absl::OkStatus();
  }

  void Leave(const std::string& why) {
    if (worker_.empty() || !registry_->Unregister(worker_, session_)) return;
    jobs_->OnLost(worker_, why);
    profiling_->OnLost(worker_);
    links_->OnLost(worker_, absl::Now());
  }

  JobManager* const jobs_;
  Profiling* const profiling_;
  WorkerRegistry* const registry_;
  LinkProber* const links_;
  OpenStreams* const streams_;
  v1::ConnectRequest incoming_;
  std::string worker_;
  int64_t session_ = 0;
  int64_t stream_ = 0;
  const std::shared_ptr<Queue> queue_;
};

}  // namespace

grpc::ServerUnaryReactor* JobRpc::Done(grpc::CallbackServerContext* context,
                                       const absl::Status& status) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* JobRpc::SubmitJob(grpc::CallbackServerContext* context,
                                            const v1::SubmitJobRequest* request,
                                            v1::SubmitJobResponse* response) {
  if (request->validate_only())
    return Done(context, jobs_->Validate(request->spec(), request->request_id()));
  auto job = jobs_->Submit(request->spec(), request->request_id());
  if (job.ok()) {
    *response->mutable_job() = *std::move(job);
  } else {
    Log(LogLevel::kWarning, "submit refused",
        {{"name", request->spec().display_name()},
         {"request", request->request_id()},
         {"client", context->peer()},
         {"code", absl::StatusCodeToString(job.status().code())},
         {"why", job.status().message()}});
  }
  return Done(context, job.status());
}

grpc::ServerUnaryReactor* JobRpc::GetJob(grpc::CallbackServerContext* context,
                                         const v1::GetJobRequest* request,
                                         v1::GetJobResponse* response) {
  auto job = jobs_->Get(request->name());
  if (job.ok()) *response->mutable_job() = *std::move(job);
  return Done(context, job.status());
}

grpc::ServerUnaryReactor* JobRpc::ListJobs(grpc::CallbackServerContext* context,
                                           const v1::ListJobsRequest* request,
                                           v1::ListJobsResponse* response) {
  auto list = jobs_->List(*request);
  if (list.ok()) *response = *std::move(list);
  return Done(context, list.status());
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* JobRpc::WatchJob(
    grpc::CallbackServerContext* /*context*/, const grpc::ByteBuffer* request) {
  return StartWatch(jobs_, streams_, &responses_, *request);
}

grpc::ServerUnaryReactor* JobRpc::CancelJob(grpc::CallbackServerContext* context,
                                            const v1::CancelJobRequest* request,
                                            v1::CancelJobResponse* response) {
  auto job = jobs_->Cancel(request->name(), request->request_id());
  if (job.ok()) *response->mutable_job() = *std::move(job);
  return Done(context, job.status());
}

grpc::ServerUnaryReactor* JobRpc::DeleteJob(grpc::CallbackServerContext* context,
                                            const v1::DeleteJobRequest* request,
                                            v1::DeleteJobResponse* /*response*/) {
  return Done(context, jobs_->Delete(request->name()));
}

grpc::ServerUnaryReactor* JobRpc::ReplanJob(grpc::CallbackServerContext* context,
                                            const v1::ReplanJobRequest* request,
                                            v1::ReplanJobResponse* response) {
  auto* reactor = context->DefaultReactor();
  jobs_->Replan(*request, [reactor, response](absl::StatusOr<v1::ReplanJobResponse> result) {
    if (result.ok()) *response = *std::move(result);
    reactor->Finish(ToGrpc(result.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobRpc::GetJobTrace(grpc::CallbackServerContext* context,
                                              const v1::GetJobTraceRequest* request,
                                              v1::GetJobTraceResponse* response) {
  auto trace = jobs_->Trace(request->name());
  if (trace.ok()) *response = *std::move(trace);
  return Done(context, trace.status());
}

grpc::ServerUnaryReactor* JobRpc::ListJobSteps(grpc::CallbackServerContext* context,
                                               const v1::ListJobStepsRequest* request,
                                               v1::ListJobStepsResponse* response) {
  auto steps = jobs_->Steps(request->name(), request->after_step());
  if (steps.ok()) *response = *std::move(steps);
  return Done(context, steps.status());
}

grpc::ServerUnaryReactor* JobRpc::ListWorkers(grpc::CallbackServerContext* context,
                                              const v1::ListWorkersRequest* request,
                                              v1::ListWorkersResponse* response) {
  for (v1::Worker& worker : registry_->List()) *response->add_workers() = std::move(worker);
  if (request->events()) {
    for (const Event& event : jobs_->WorkerEvents()) *response->add_events() = ToProto(event);
  }
  return Done(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* JobRpc::SetWorkerAvailability(
    grpc::CallbackServerContext* context, const v1::SetWorkerAvailabilityRequest* request,
    v1::SetWorkerAvailabilityResponse* response) {
  auto worker = jobs_->SetAvailability(*request);
  if (worker.ok()) *response->mutable_worker() = *std::move(worker);
  return Done(context, "SetWorkerAvailability", worker.status());
}

grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* WorkerRpc::Connect(
    grpc::CallbackServerContext* /*context*/) {
  return new WorkerStream(jobs_, profiling_, registry_, links_, streams_);
}

}  // namespace stagewright
