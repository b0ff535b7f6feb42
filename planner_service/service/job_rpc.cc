#include "planner_service/service/job_rpc.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "common/log/log.h"
#include "common/wire/limits.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/service/message_queue.h"

namespace stagewright {
namespace {

// One worker's stream. The first message registers; the end of the stream, however it comes, means
// the worker is lost.
class WorkerStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  WorkerStream(grpc::CallbackServerContext* context, JobManager* jobs, Profiling* profiling,
               WorkerRegistry* registry, LinkProber* links, OpenStreams* streams, Door* door,
               MessageBudget* budget)
      : context_(context),
        budget_(budget),
        door_(door),
        jobs_(jobs),
        profiling_(profiling),
        registry_(registry),
        links_(links),
        streams_(streams),
        queue_(std::make_shared<Queue>(this, Queue::Bound{kMostWaiting, &grpc::ByteBuffer::Length,
                                                          [context] { context->TryCancel(); }})) {
    stream_ = streams_->Add(
        [queue = queue_] {
          queue->Abort(ToGrpc(absl::UnavailableError("the planner is shutting down")));
        },
        OpenStreams::kWorkers);
    if (const absl::Status room = streams_->CheckRoomForWorker(); room.ok()) {
      StartRead(&incoming_);
    } else {
      queue_->Close(ToGrpc(room));
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Leave("its connection ended");
      queue_->Abort(grpc::Status::OK);
      return;
    }
    if (absl::Status status = TakeBytes(); !status.ok()) {
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
  using Queue = MessageQueue<WorkerStream, grpc::ByteBuffer>;
  // What a job's programs need comes to a fraction of it, and a worker reads whatever it does.
  static constexpr size_t kMostWaiting = size_t{256} << 20;

  static grpc::ByteBuffer Encoded(const v1::ConnectResponse& response) {
    grpc::ByteBuffer bytes;
    bool own = true;
    grpc::SerializationTraits<v1::ConnectResponse>::Serialize(response, &bytes, &own).IgnoreError();
    return bytes;
  }

  // A message is in memory for no longer than it is taken, and within the budget of all streams.
  absl::Status TakeBytes() {
    grpc::Slice all;
    if (!incoming_.DumpToSingleSlice(&all).ok()) return absl::InternalError("the message is lost");
    incoming_.Clear();
    const absl::string_view bytes(reinterpret_cast<const char*>(all.begin()), all.size());
    const MessageBudget::Claim claim = budget_->Take(v1::ConnectRequest::descriptor(), bytes);
    const absl::Cleanup give_back = [&] { budget_->GiveBack(claim.taken); };
    if (claim.answer == MessageBudget::Answer::kFull) return NoRoomForMessage();
    if (claim.answer == MessageBudget::Answer::kTooLarge) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the message would take more than ", budget_->most_of_message() >> 20,
                       " MiB of memory: it has far more parts than contents"));
    }
    v1::ConnectRequest message;
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      return absl::InvalidArgumentError("this is no message of a worker");
    return Take(message);
  }

  absl::Status Take(const v1::ConnectRequest& message) {
    absl::Status status = CheckLimits(message);
    if (message.has_register_()) {
      if (status.ok()) status = Enter(message.register_());
      door_->Audit(*context_, "Connect", message.register_().worker(), status);
      return status;
    }
    RETURN_IF_ERROR(status);
    if (worker_.empty())
      return absl::FailedPreconditionError("the first message of a worker must be `register`");
    if (!registry_->Heartbeat(worker_, session_, SteadyNow())) {
      return absl::UnavailableError(
          absl::StrCat("worker ", worker_, " was silent for too long; it must register again"));
    }
    // That was all that it said, and what jobs need may take the manager a while.
    if (message.has_heartbeat()) return absl::OkStatus();
    if (message.has_operators_profiled()) {
      profiling_->OnProfiled(worker_, message.operators_profiled());
    } else if (message.has_probe_ready()) {
      links_->OnReady(worker_, message.probe_ready(), SteadyNow());
    } else if (message.has_links_probed()) {
      links_->OnProbed(worker_, message.links_probed(), SteadyNow());
    } else {
      jobs_->OnMessage(worker_, message);
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
      return queue->Push(Encoded(response));
    });
    if (!session.ok()) {
      Log(LogLevel::kWarning, "worker not let in",
          {{"worker", message.worker()}, {"why", std::string(session.status().message())}});
      return session.status();
    }
    worker_ = message.worker();
    session_ = *session;
    links_->OnRegistered(message, SteadyNow());
    return absl::OkStatus();
  }

  void Leave(const std::string& why) {
    if (worker_.empty() || !jobs_->OnLost(worker_, session_, why)) return;
    profiling_->OnLost(worker_);
    links_->OnLost(worker_, SteadyNow());
  }

  grpc::CallbackServerContext* const context_;
  MessageBudget* const budget_;
  Door* const door_;
  JobManager* const jobs_;
  Profiling* const profiling_;
  WorkerRegistry* const registry_;
  LinkProber* const links_;
  OpenStreams* const streams_;
  grpc::ByteBuffer incoming_;
  std::string worker_;
  int64_t session_ = 0;
  int64_t stream_ = 0;
  const std::shared_ptr<Queue> queue_;
};

// Whether it takes more than a look to tell that the job can be planned.
bool BringsPlan(const v1::JobSpec& spec) {
  const v1::PlanOptions& options = spec.plan_options();
  return spec.has_strategy() || !options.manual().empty() || options.splits_size() > 0;
}

// What the log says of a worker that somebody opens or closes.
absl::string_view Told(v1::WorkerAvailability availability) {
  switch (availability) {
    case v1::WORKER_AVAILABILITY_CORDONED:
      return "worker cordoned";
    case v1::WORKER_AVAILABILITY_DRAINING:
      return "worker drained";
    default:
      return "worker uncordoned";
  }
}

}  // namespace

grpc::ServerUnaryReactor* JobRpc::Done(grpc::CallbackServerContext* context,
                                       const absl::Status& status) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* JobRpc::Refuse(grpc::CallbackServerContext* context, const char* call,
                                         absl::string_view what, const absl::Status& why) {
  door_->Audit(*context, call, what, why);
  return Done(context, why);
}

absl::Status JobRpc::CheckOwner(const absl::StatusOr<Caller>& caller,
                                const std::string& job) const {
  RETURN_IF_ERROR(caller.status());
  if (caller->role == Role::kOperator) return absl::OkStatus();
  ASSIGN_OR_RETURN(const v1::Job found, jobs_->Get(job));
  return MayChangeJob(*caller, job, found.spec().owner(), found.spec().tenant());
}

absl::Status JobRpc::Submit(const grpc::CallbackServerContext& context, const Caller& caller,
                            const v1::SubmitJobRequest& request, v1::SubmitJobResponse* response) {
  v1::JobSpec spec = request.spec();
  spec.set_owner(caller.user);
  spec.set_tenant(caller.tenant);
  const v1::PlanBasis* basis = request.has_plan_basis() ? &request.plan_basis() : nullptr;
  // A plan that is held to its basis is of these devices and no others.
  if (basis != nullptr) spec.mutable_plan_options()->clear_found_for();
  if (request.validate_only()) return jobs_->Validate(spec, request.request_id(), basis);
  const std::string client = door_->PeerOf(context);
  auto job = jobs_->Submit(spec, request.request_id(), client, basis);
  absl::Status status = job.status();
  door_->Audit(context, caller, "SubmitJob", job.ok() ? job->name() : spec.display_name(), status);
  if (job.ok()) {
    *response->mutable_job() = *std::move(job);
  } else {
    Log(LogLevel::kWarning, "submit refused",
        {{"name", request.spec().display_name()},
         {"request", request.request_id()},
         {"client", client},
         {"code", absl::StatusCodeToString(status.code())},
         {"why", status.message()}});
  }
  return status;
}

grpc::ServerUnaryReactor* JobRpc::SubmitJob(grpc::CallbackServerContext* context,
                                            const v1::SubmitJobRequest* request,
                                            v1::SubmitJobResponse* response) {
  const auto refuse = [&](const absl::Status& why) {
    if (request->validate_only()) return Done(context, why);
    return Refuse(context, "SubmitJob", request->spec().display_name(), why);
  };
  if (const absl::Status limits = CheckLimits(*request); !limits.ok()) return refuse(limits);
  const auto caller = door_->CallerOf(*context);
  if (!caller.ok()) return refuse(caller.status());
  if (!BringsPlan(request->spec()))
    return Done(context, Submit(*context, *caller, *request, response));
  auto* reactor = context->DefaultReactor();
  const auto give_up = [=, this](const absl::Status& full) {
    if (!request->validate_only())
      door_->Audit(*context, caller, "SubmitJob", request->spec().display_name(), full);
    reactor->Finish(ToGrpc(full));
  };
  const absl::Status queued = plan_checks_.Submit(
      {door_->ShareOf(*context),
       [=, this] { reactor->Finish(ToGrpc(Submit(*context, *caller, *request, response))); },
       give_up});
  if (!queued.ok()) give_up(queued);
  return reactor;
}

grpc::ServerUnaryReactor* JobRpc::GetJob(grpc::CallbackServerContext* context,
                                         const v1::GetJobRequest* request,
                                         v1::GetJobResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok()) return Done(context, limits);
  auto job = jobs_->Get(request->name());
  return Done(context, MoveTo(std::move(job), response->mutable_job()));
}

grpc::ServerUnaryReactor* JobRpc::ListJobs(grpc::CallbackServerContext* context,
                                           const v1::ListJobsRequest* request,
                                           v1::ListJobsResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok()) return Done(context, limits);
  auto list = jobs_->List(*request);
  return Done(context, MoveTo(std::move(list), response));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* JobRpc::WatchJob(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request) {
  return StartWatch(jobs_, streams_, &responses_, door_->ShareOf(*context), *request);
}

grpc::ServerUnaryReactor* JobRpc::CancelJob(grpc::CallbackServerContext* context,
                                            const v1::CancelJobRequest* request,
                                            v1::CancelJobResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok())
    return Refuse(context, "CancelJob", request->name(), limits);
  const absl::Status owner = CheckOwner(door_->CallerOf(*context), request->name());
  absl::StatusOr<v1::Job> job =
      owner.ok() ? jobs_->Cancel(request->name(), request->request_id()) : owner;
  door_->Audit(*context, "CancelJob", request->name(), job.status());
  return Done(context, MoveTo(std::move(job), response->mutable_job()));
}

grpc::ServerUnaryReactor* JobRpc::DeleteJob(grpc::CallbackServerContext* context,
                                            const v1::DeleteJobRequest* request,
                                            v1::DeleteJobResponse* /*response*/) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok())
    return Refuse(context, "DeleteJob", request->name(), limits);
  absl::Status status = CheckOwner(door_->CallerOf(*context), request->name());
  if (status.ok()) status = jobs_->Delete(request->name());
  door_->Audit(*context, "DeleteJob", request->name(), status);
  return Done(context, status);
}

grpc::ServerUnaryReactor* JobRpc::ReplanJob(grpc::CallbackServerContext* context,
                                            const v1::ReplanJobRequest* request,
                                            v1::ReplanJobResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok())
    return Refuse(context, "ReplanJob", request->name(), limits);
  const auto caller = door_->CallerOf(*context);
  if (const absl::Status owner = CheckOwner(caller, request->name()); !owner.ok()) {
    door_->Audit(*context, caller, "ReplanJob", request->name(), owner);
    return Done(context, owner);
  }
  auto* reactor = context->DefaultReactor();
  jobs_->Replan(*request, [this, context, request, reactor, response,
                           caller](absl::StatusOr<v1::ReplanJobResponse> result) {
    door_->Audit(*context, caller, "ReplanJob", request->name(), result.status());
    reactor->Finish(ToGrpc(MoveTo(std::move(result), response)));
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobRpc::GetJobTrace(grpc::CallbackServerContext* context,
                                              const v1::GetJobTraceRequest* request,
                                              v1::GetJobTraceResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok()) return Done(context, limits);
  auto trace = jobs_->Trace(request->name());
  return Done(context, MoveTo(std::move(trace), response));
}

grpc::ServerUnaryReactor* JobRpc::ListJobSteps(grpc::CallbackServerContext* context,
                                               const v1::ListJobStepsRequest* request,
                                               v1::ListJobStepsResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok()) return Done(context, limits);
  auto steps = jobs_->Steps(request->name(), request->after_step());
  return Done(context, MoveTo(std::move(steps), response));
}

grpc::ServerUnaryReactor* JobRpc::ListJobLogs(grpc::CallbackServerContext* context,
                                              const v1::ListJobLogsRequest* request,
                                              v1::ListJobLogsResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok()) return Done(context, limits);
  auto log = jobs_->Logs(request->name(), request->after_position());
  return Done(context, MoveTo(std::move(log), response));
}

grpc::ServerUnaryReactor* JobRpc::ListWorkers(grpc::CallbackServerContext* context,
                                              const v1::ListWorkersRequest* request,
                                              v1::ListWorkersResponse* response) {
  *response = jobs_->Workers(request->events());
  return Done(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* JobRpc::SetWorkerAvailability(
    grpc::CallbackServerContext* context, const v1::SetWorkerAvailabilityRequest* request,
    v1::SetWorkerAvailabilityResponse* response) {
  if (const absl::Status limits = CheckLimits(*request); !limits.ok())
    return Refuse(context, "SetWorkerAvailability", request->name(), limits);
  const auto caller = door_->CallerOf(*context);
  auto worker = jobs_->SetAvailability(*request);
  door_->Audit(*context, caller, "SetWorkerAvailability", request->name(), worker.status());
  if (worker.ok()) {
    Log(LogLevel::kInfo, Told(request->availability()),
        {{"worker", request->name()},
         {"who", caller.ok() ? caller->user : ""},
         {"client", door_->PeerOf(*context)}});
  }
  return Done(context, MoveTo(std::move(worker), response->mutable_worker()));
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* WorkerRpc::Connect(
    grpc::CallbackServerContext* context) {
  return new WorkerStream(context, jobs_, profiling_, registry_, links_, streams_, door_, budget_);
}

}  // namespace stagewright
