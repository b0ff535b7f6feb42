#include "planner_service/service/planner_rpc.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <chrono>
#include <memory>
#include <utility>

#include "common/wire/limits.h"
#include "common/wire/strategy_proto.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/service/message_queue.h"
#include "planner_service/wire/plan_basis.h"
#include "planner_service/wire/plan_proto.h"

namespace stagewright {
namespace {

SearchContext::Clock::time_point DeadlineOf(const grpc::CallbackServerContext& context) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max())
    return SearchContext::Clock::time_point::max();
  const auto left = deadline - std::chrono::system_clock::now();
  // Leave a little time to send the answer found so far.
  return SearchContext::Clock::now() +
         std::chrono::duration_cast<SearchContext::Clock::duration>(left) * 9 / 10;
}

// A unary call whose work runs in the pool and which stops when the client goes away.
class PooledCall : public grpc::ServerUnaryReactor {
 public:
  using Work = std::function<absl::Status(SearchContext&)>;

  static grpc::ServerUnaryReactor* Start(PlanningPool* pool, std::string caller,
                                         const grpc::CallbackServerContext& context,
                                         const google::protobuf::Message& request, Work work) {
    auto* call = new PooledCall(DeadlineOf(context));
    absl::Status queued = CheckLimits(request);
    if (queued.ok()) {
      queued =
          pool->Submit({std::move(caller),
                        [call, work = std::move(work)] { call->Complete(work(*call->search_)); },
                        [call](const absl::Status& full) { call->Complete(full); }});
    }
    if (!queued.ok()) call->Complete(queued);
    return call;
  }

  void OnCancel() override { search_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  explicit PooledCall(SearchContext::Clock::time_point deadline)
      : search_(std::make_unique<SearchContext>(deadline)) {}

  void Complete(const absl::Status& status) { Finish(ToGrpc(status)); }

  const std::unique_ptr<SearchContext> search_;
};

// Has the answer's plan say what is known of its devices, and returns the version of that. Without
// measurements that can be read it says nothing of them: they are a help only.
std::optional<int64_t> NameProfiles(const ProfileStore& profiles, v1::PlanResponse& response) {
  const int64_t version = profiles.version();  // Before it is read, which may be of a later one.
  if (!response.has_basis()) return version;
  const auto known = profiles.Read();
  const OperatorProfile none;
  SetProfiles(known.ok() ? **known : none, *response.mutable_basis());
  return known.ok() ? std::optional(version) : std::nullopt;
}

absl::Status SolveInto(const v1::PlanRequest& proto, SearchContext& context,
                       PlannerMetrics* metrics,
                       const std::function<void(const JudgedPlan&, const Cluster&)>& on_improvement,
                       v1::PlanResponse* out) {
  ASSIGN_OR_RETURN(OwnedPlanRequest owned, FromProto(proto));
  ImprovementCallback improved;
  if (on_improvement)
    improved = [&](const JudgedPlan& plan) { on_improvement(plan, *owned.cluster); };
  auto response = SolvePlan(owned.request, context, improved);
  if (metrics != nullptr) {
    const std::string result = response.ok() ? TerminationName(response->termination)
                                             : absl::StatusCodeToString(response.status().code());
    // A name that does not exist must not make a series of its own.
    const bool known = response.status().code() != absl::StatusCode::kNotFound;
    metrics->CountPlan(known ? owned.request.planner : "unknown", result, "call",
                       response.ok() ? response->search_seconds : 0);
  }
  RETURN_IF_ERROR(response.status());
  *out = ToProto(*response, *owned.cluster);
  if (!out->has_best()) return absl::OkStatus();
  *out->mutable_basis() = BasisOf(proto.problem(), DevicesOf(*owned.cluster));
  SetLinks(*owned.cluster, *out->mutable_basis());
  return absl::OkStatus();
}

// A strategy that a client has made. DEADLINE_EXCEEDED if it is not judged in time: that says
// nothing of it. Who has gone away does not hear it.
absl::StatusOr<JudgedPlan> JudgeGiven(const PlanRequest& request, const v1::Strategy& strategy,
                                      const SearchContext& search) {
  auto judged = JudgeStrategy(request, FromProto(strategy), "given", &search);
  if (absl::IsCancelled(judged.status()))
    return absl::DeadlineExceededError("there was no time to judge the strategy");
  return judged;
}

// A question to the cache, which the client may take back.
class PlanCall : public grpc::ServerUnaryReactor {
 public:
  PlanCall(PlanCache* cache, grpc::ByteBuffer* response) : cache_(cache), response_(response) {}

  void Start(PlanningPool& pool, std::string caller, absl::string_view question,
             v1::PlanRequest request, PlanCache::Deadline deadline) {
    // The call may have ended when Ask returns, but lives on until its reactor is handed out.
    ticket_ = cache_->Ask(pool, std::move(caller), question, std::move(request), deadline,
                          [this](const PlanCache::Answer& answer) {
                            if (answer.ok()) *response_ = *answer;
                            Finish(ToGrpc(answer.status()));
                          });
  }

  void OnCancel() override {
    if (cache_->Cancel(ticket_)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  PlanCache* const cache_;
  grpc::ByteBuffer* const response_;
  int64_t ticket_ = 0;
};

// Streams improvements; the client's going away cancels the search.
class PlanStreamCall : public grpc::ServerWriteReactor<v1::PlanStreamResponse> {
 public:
  PlanStreamCall(OpenStreams* streams, SearchContext::Clock::time_point deadline)
      : streams_(streams), search_(deadline), queue_(this) {
    id_ = streams_->Add([this] {
      search_.Cancel();
      queue_.Abort(ToGrpc(absl::UnavailableError("the planner is shutting down")));
    });
  }

  void Solve(const v1::PlanRequest& request, PlannerMetrics* metrics,
             const ProfileStore& profiles) {
    v1::PlanStreamResponse last;
    const absl::Status status = SolveInto(
        request, search_, metrics,
        [this](const JudgedPlan& plan, const Cluster& cluster) {
          v1::PlanStreamResponse message;
          *message.mutable_improvement() = ToProto(plan, cluster);
          // Only the newest waits for a slow reader, and then the final one behind it.
          queue_.Push(std::move(message), /*replace_waiting=*/true);
        },
        last.mutable_final());
    NameProfiles(profiles, *last.mutable_final());
    if (status.ok()) queue_.Push(std::move(last));
    Close(status);
  }

  void Close(const absl::Status& status) {
    queue_.Close(ToGrpc(status));
    Unref();
  }

  void OnWriteDone(bool ok) override { queue_.OnWriteDone(ok); }
  void OnCancel() override { search_.Cancel(); }
  void OnDone() override {
    streams_->Remove(id_);
    Unref();
  }

 private:
  // Alive until both the stream is done and the search has ended.
  void Unref() {
    if (references_.fetch_sub(1) == 1) delete this;
  }

  OpenStreams* const streams_;
  int64_t id_ = 0;
  SearchContext search_;
  MessageQueue<PlanStreamCall, v1::PlanStreamResponse> queue_;
  std::atomic<int> references_{2};
};

}  // namespace

grpc::ServerUnaryReactor* PlannerRpc::Plan(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) {
  const auto end = [context](const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  };
  grpc::Slice bytes;
  grpc::Status read = request->DumpToSingleSlice(&bytes);
  if (!read.ok()) return end(read);
  const absl::string_view question(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  if (std::optional<grpc::ByteBuffer> known = cache_->Find(question)) {
    *response = *std::move(known);
    return end(grpc::Status::OK);
  }
  v1::PlanRequest asked;
  grpc::ByteBuffer encoded(&bytes, 1);
  read = grpc::SerializationTraits<v1::PlanRequest>::Deserialize(&encoded, &asked);
  if (read.ok()) read = ToGrpc(CheckLimits(asked));
  if (!read.ok()) return end(read);
  auto* call = new PlanCall(cache_, response);
  call->Start(*pool_, door_->ShareOf(*context), question, std::move(asked), DeadlineOf(*context));
  return call;
}

grpc::ServerWriteReactor<v1::PlanStreamResponse>* PlannerRpc::PlanStream(
    grpc::CallbackServerContext* context, const v1::PlanStreamRequest* request) {
  auto* call = new PlanStreamCall(streams_, DeadlineOf(*context));
  if (const absl::Status limits = CheckLimits(*request); !limits.ok()) {
    call->Close(limits);
    return call;
  }
  // The request lives only as long as the stream, the search possibly longer.
  const absl::Status queued =
      pool_->Submit({door_->ShareOf(*context),
                     [call, plan = request->plan(), metrics = metrics_, profiles = profiles_] {
                       call->Solve(plan, metrics, *profiles);
                     },
                     [call](const absl::Status& full) { call->Close(full); }});
  if (!queued.ok()) call->Close(queued);
  return call;
}

grpc::ServerUnaryReactor* PlannerRpc::Validate(grpc::CallbackServerContext* context,
                                               const v1::ValidateRequest* request,
                                               v1::ValidateResponse* response) {
  const auto work = [=](SearchContext& search) -> absl::Status {
    ASSIGN_OR_RETURN(OwnedPlanRequest owned, FromProto(request->problem()));
    const auto judged = JudgeGiven(owned.request, request->strategy(), search);
    // What the strategy breaks is the answer; what the question breaks is an error.
    if (absl::IsInvalidArgument(judged.status()) || absl::IsDeadlineExceeded(judged.status()))
      return judged.status();
    response->set_valid(judged.ok());
    response->set_violation(std::string(judged.status().message()));
    return absl::OkStatus();
  };
  return PooledCall::Start(pool_, door_->ShareOf(*context), *context, *request, work);
}

grpc::ServerUnaryReactor* PlannerRpc::Simulate(grpc::CallbackServerContext* context,
                                               const v1::SimulateRequest* request,
                                               v1::SimulateResponse* response) {
  const auto work = [=](SearchContext& search) -> absl::Status {
    ASSIGN_OR_RETURN(OwnedPlanRequest owned, FromProto(request->problem()));
    owned.request.timeline = request->timeline();
    ASSIGN_OR_RETURN(JudgedPlan judged, JudgeGiven(owned.request, request->strategy(), search));
    *response->mutable_plan() = ToProto(judged, *owned.cluster);
    return absl::OkStatus();
  };
  return PooledCall::Start(pool_, door_->ShareOf(*context), *context, *request, work);
}

grpc::ServerUnaryReactor* PlannerRpc::Explain(grpc::CallbackServerContext* context,
                                              const v1::ExplainRequest* request,
                                              v1::ExplainResponse* response) {
  const auto work = [=](SearchContext& search) -> absl::Status {
    ASSIGN_OR_RETURN(OwnedPlanRequest owned, FromProto(request->problem()));
    ASSIGN_OR_RETURN(const Explanation explanation,
                     ExplainStrategy(owned.request, FromProto(request->strategy()), search));
    *response->mutable_explanation() = ToProto(explanation);
    return absl::OkStatus();
  };
  return PooledCall::Start(pool_, door_->ShareOf(*context), *context, *request, work);
}

grpc::ServerUnaryReactor* PlannerRpc::ListPlanners(grpc::CallbackServerContext* context,
                                                   const v1::ListPlannersRequest* /*request*/,
                                                   v1::ListPlannersResponse* response) {
  for (const PlannerInfo& info : stagewright::ListPlanners()) {
    v1::PlannerInfo* out = response->add_planners();
    out->set_name(info.name);
    out->set_description(info.description);
    out->set_is_default(info.name == PlanRequest().planner);
  }
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* PlannerRpc::GetServer(grpc::CallbackServerContext* context,
                                                const v1::GetServerRequest* /*request*/,
                                                v1::GetServerResponse* response) {
  figures_(*response);
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

absl::StatusOr<PlanCache::Found> SearchPlan(const v1::PlanRequest& request, SearchContext& context,
                                            const ProfileStore& profiles, PlannerMetrics* metrics) {
  PlanCache::Found found;
  RETURN_IF_ERROR(SolveInto(request, context, metrics, {}, &found.response));
  found.version = NameProfiles(profiles, found.response);
  return found;
}

}  // namespace stagewright
