// stagewright.v1.JobService and WorkerService over the job manager and the worker registry.
#pragma once

#include "planner_service/intake/message_budget.h"
#include "planner_service/jobs/planning_pool.h"
#include "planner_service/lifecycle/job_manager.h"
#include "planner_service/links/link_prober.h"
#include "planner_service/profiles/profiling.h"
#include "planner_service/service/door.h"
#include "planner_service/service/rpc.h"
#include "planner_service/service/watch_call.h"
#include "stagewright/v1/job_service.grpc.pb.h"
#include "stagewright/v1/worker_service.grpc.pb.h"

namespace stagewright {

// WatchJob is raw: one encoded message goes to all watchers of a job.
class JobRpc
    : public v1::JobService::WithRawCallbackMethod_WatchJob<v1::JobService::CallbackService> {
 public:
  // All outlive the service.
  JobRpc(JobManager* jobs, OpenStreams* streams, Door* door)
      : jobs_(jobs), streams_(streams), door_(door) {}

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::GetJobResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchJob(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerUnaryReactor* ReplanJob(grpc::CallbackServerContext* context,
                                      const v1::ReplanJobRequest* request,
                                      v1::ReplanJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJobTrace(grpc::CallbackServerContext* context,
                                        const v1::GetJobTraceRequest* request,
                                        v1::GetJobTraceResponse* response) override;
  grpc::ServerUnaryReactor* ListJobSteps(grpc::CallbackServerContext* context,
                                         const v1::ListJobStepsRequest* request,
                                         v1::ListJobStepsResponse* response) override;
  grpc::ServerUnaryReactor* ListJobLogs(grpc::CallbackServerContext* context,
                                        const v1::ListJobLogsRequest* request,
                                        v1::ListJobLogsResponse* response) override;
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* SetWorkerAvailability(
      grpc::CallbackServerContext* context, const v1::SetWorkerAvailabilityRequest* request,
      v1::SetWorkerAvailabilityResponse* response) override;

 private:
  grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context, const absl::Status& status);
  // What SubmitJob does for who may.
  absl::Status Submit(const grpc::CallbackServerContext& context, const Caller& caller,
                      const v1::SubmitJobRequest& request, v1::SubmitJobResponse* response);
  // A call that would have changed something: it is in the audit log all the same.
  grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, const char* call,
                                   absl::string_view what, const absl::Status& why);
  // Whether the job is the caller's to change.
  absl::Status CheckOwner(const absl::StatusOr<Caller>& caller, const std::string& job) const;

  JobManager* const jobs_;
  OpenStreams* const streams_;
  WatchResponses responses_;
  Door* const door_;
  // Plans that jobs bring may take seconds to check, and nobody else's call waits for them.
  PlanningPool plan_checks_{1, 16};
};

// Connect is raw: messages are looked at before they are made.
class WorkerRpc
    : public v1::WorkerService::WithRawCallbackMethod_Connect<v1::WorkerService::Service> {
 public:
  WorkerRpc(JobManager* jobs, Profiling* profiling, WorkerRegistry* registry, LinkProber* links,
            OpenStreams* streams, Door* door, MessageBudget* budget)
      : jobs_(jobs),
        profiling_(profiling),
        registry_(registry),
        links_(links),
        streams_(streams),
        door_(door),
        budget_(budget) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  JobManager* const jobs_;
  Profiling* const profiling_;
  WorkerRegistry* const registry_;
  LinkProber* const links_;
  OpenStreams* const streams_;
  Door* const door_;
  MessageBudget* const budget_;  // For the messages of all workers.
};

}  // namespace stagewright
