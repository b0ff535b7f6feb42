#include "planner_service/service/job_rpc.h"

#include <utility>

#include "common/wire/job_state.h"
#include "common/wire/limits.h"
#include "planner_service/service/message_queue.h"

namespace stagewright {
namespace {

// Workers' and those of watchers. Every change of a job is written to each that watches it.
constexpr size_t kMostOpenStreams = 4096;

class WatchCall : public grpc::ServerWriteReactor<v1::WatchJobResponse> {
 public:
  WatchCall(JobManager* jobs, OpenStreams* streams, const v1::WatchJobRequest& request)
      : jobs_(jobs), streams_(streams), after_version_(request.after_version()), queue_(this) {
    stream_ = streams_->Add([this] {
      queue_.Abort(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the planner is shutting down"));
    });
    absl::Status status = CheckLimits(request);
    if (status.ok() && streams_->size() > kMostOpenStreams) {
      status = absl::ResourceExhaustedError(absl::StrCat(
          "more than ", kMostOpenStreams, " streams are open: watch fewer jobs, or try again"));
    }
    if (!status.ok()) {
      queue_.Close(ToGrpc(status));
      return;
    }
    auto watch =
        jobs_->Watch(request.name(), [this](std::shared_ptr<const v1::Job> job) { Show(*job); });
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
  void Show(const v1::Job& job) {
    if (job.version() > after_version_) {
      v1::WatchJobResponse message;
      *message.mutable_job() = job;
      // A slow reader sees the latest state, not every step.
      queue_.Push(std::move(message), /*replace_waiting=*/true);
    }
    if (IsTerminal(job.state())) queue_.Close(grpc::Status::OK);
  }

  JobManager* const jobs_;
  OpenStreams* const streams_;
  const int64_t after_version_;
  int64_t stream_ = 0;
  int64_t watch_ = 0;
  MessageQueue<WatchCall, v1::WatchJobResponse> queue_;
};

// One worker's stream. The first message registers; the end of the stream, however it comes, means
// the worker is lost.
class WorkerStream : public grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse> {
 public:
  WorkerStream(grpc::CallbackServerContext* context, JobManager* jobs, Profiling* profiling,
               WorkerRegistry* registry, LinkProber* links, OpenStreams* streams, Door* door)
      : context_(context),
        door_(door),
        jobs_(jobs),
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
    RETURN_IF_ERROR(CheckLimits(incoming_));
    if (incoming_.has_register_()) {
      const absl::Status status = Enter(incoming_.register_());
      door_->Audit(*context_, "Connect", incoming_.register_().worker(), status);
      return status;
    }
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
    ASSIGN_OR_RETURN(const Caller caller, door_->CallerOf(*context_));
    RETURN_IF_ERROR(MayRegister(caller, message.worker()));
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

  grpc::CallbackServerContext* const context_;
  Door* const door_;
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

grpc::ServerUnaryReactor* JobRpc::Done(grpc::CallbackServerContext* context, const char* method,
                                       const absl::Status& status) {
  if (metrics_ != nullptr) metrics_->CountRequest(method, absl::StatusCodeToString(status.code()));
  auto* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

absl::Status JobRpc::CheckOwner(const grpc::CallbackServerContext& context,
                                const std::string& job) const {
  ASSIGN_OR_RETURN(const Caller caller, door_->CallerOf(context));
  if (caller.role == Role::kOperator) return absl::OkStatus();
  ASSIGN_OR_RETURN(const v1::Job found, jobs_->Get(job));
  return MayChangeJob(caller, job, found.spec().owner(), found.spec().tenant());
}

grpc::ServerUnaryReactor* JobRpc::SubmitJob(grpc::CallbackServerContext* context,
                                            const v1::SubmitJobRequest* request,
                                            v1::SubmitJobResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok())
    return Done(context, "SubmitJob", limits);
  absl::StatusOr<v1::Job> job = absl::UnknownError("not submitted");
  const auto caller = door_->CallerOf(*context);
  if (caller.ok()) {
    v1::JobSpec spec = request->spec();
    spec.set_owner(caller->user);
    spec.set_tenant(caller->tenant);
    job = jobs_->Submit(spec, request->request_id());
  } else {
    job = caller.status();
  }
  door_->Audit(*context, "SubmitJob", job.ok() ? job->name() : request->spec().display_name(),
               job.status());
  if (job.ok()) *response->mutable_job() = *std::move(job);
  return Done(context, "SubmitJob", job.status());
}

grpc::ServerUnaryReactor* JobRpc::GetJob(grpc::CallbackServerContext* context,
                                         const v1::GetJobRequest* request,
                                         v1::GetJobResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok())
    return Done(context, "GetJob", limits);
  auto job = jobs_->Get(request->name());
  if (job.ok()) *response->mutable_job() = *std::move(job);
  return Done(context, "GetJob", job.status());
}

grpc::ServerUnaryReactor* JobRpc::ListJobs(grpc::CallbackServerContext* context,
                                           const v1::ListJobsRequest* request,
                                           v1::ListJobsResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok())
    return Done(context, "ListJobs", limits);
  auto list = jobs_->List(request->page_size(), request->page_token());
  if (list.ok()) *response = *std::move(list);
  return Done(context, "ListJobs", list.status());
}

grpc::ServerWriteReactor<v1::WatchJobResponse>* JobRpc::WatchJob(
    grpc::CallbackServerContext* /*context*/, const v1::WatchJobRequest* request) {
  return new WatchCall(jobs_, streams_, *request);
}

grpc::ServerUnaryReactor* JobRpc::CancelJob(grpc::CallbackServerContext* context,
                                            const v1::CancelJobRequest* request,
                                            v1::CancelJobResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok())
    return Done(context, "CancelJob", limits);
  const absl::Status owner = CheckOwner(*context, request->name());
  absl::StatusOr<v1::Job> job = owner.ok() ? jobs_->Cancel(request->name()) : owner;
  door_->Audit(*context, "CancelJob", request->name(), job.status());
  if (job.ok()) *response->mutable_job() = *std::move(job);
  return Done(context, "CancelJob", job.status());
}

grpc::ServerUnaryReactor* JobRpc::ReplanJob(grpc::CallbackServerContext* context,
                                            const v1::ReplanJobRequest* request,
                                            v1::ReplanJobResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok())
    return Done(context, "ReplanJob", limits);
  if (const absl::Status owner = CheckOwner(*context, request->name()); !owner.ok()) {
    door_->Audit(*context, "ReplanJob", request->name(), owner);
    return Done(context, "ReplanJob", owner);
  }
  auto* reactor = context->DefaultReactor();
  jobs_->Replan(*request, [this, context, request, reactor,
                           response](absl::StatusOr<v1::ReplanJobResponse> result) {
    door_->Audit(*context, "ReplanJob", request->name(), result.status());
    if (result.ok()) *response = *std::move(result);
    if (metrics_ != nullptr)
      metrics_->CountRequest("ReplanJob", absl::StatusCodeToString(result.status().code()));
    reactor->Finish(ToGrpc(result.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobRpc::GetJobTrace(grpc::CallbackServerContext* context,
                                              const v1::GetJobTraceRequest* request,
                                              v1::GetJobTraceResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok())
    return Done(context, "GetJobTrace", limits);
  auto trace = jobs_->Trace(request->name());
  if (trace.ok()) *response = *std::move(trace);
  return Done(context, "GetJobTrace", trace.status());
}

grpc::ServerUnaryReactor* JobRpc::ListJobSteps(grpc::CallbackServerContext* context,
                                               const v1::ListJobStepsRequest* request,
                                               v1::ListJobStepsResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok())
    return Done(context, "ListJobSteps", limits);
  auto steps = jobs_->Steps(request->name(), request->after_step());
  if (steps.ok()) *response = *std::move(steps);
  return Done(context, "ListJobSteps", steps.status());
}

grpc::ServerUnaryReactor* JobRpc::ListWorkers(grpc::CallbackServerContext* context,
                                              const v1::ListWorkersRequest* /*request*/,
                                              v1::ListWorkersResponse* response) {
  for (v1::Worker& worker : registry_->List()) *response->add_workers() = std::move(worker);
  return Done(context, "ListWorkers", absl::OkStatus());
}

grpc::ServerBidiReactor<v1::ConnectRequest, v1::ConnectResponse>* WorkerRpc::Connect(
    grpc::CallbackServerContext* context) {
  return new WorkerStream(context, jobs_, profiling_, registry_, links_, streams_, door_);
}

}  // namespace stagewright
