#include "planner_service/election/follower_planner.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/election/answered_here.h"
#include "planner_service/service/planner_rpc.h"

namespace stagewright {
namespace {

constexpr int64_t kCachedBytes = 0;

// No check of the port's has let callers in, as most calls are passed on: each is held to the door
// here.
class CheckedRpc : public PlannerRpc {
 public:
  using PlannerRpc::PlannerRpc;

  grpc::ServerUnaryReactor* Plan(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override {
    if (auto* refusal = Refusal("Plan", context)) return refusal;
    return PlannerRpc::Plan(context, request, response);
  }
  grpc::ServerWriteReactor<v1::PlanStreamResponse>* PlanStream(
      grpc::CallbackServerContext* context, const v1::PlanStreamRequest* request) override {
    const absl::Status status = door_->MayCall(*context, NameOf("PlanStream"));
    if (!status.ok()) return new RefusedStream(status);
    return PlannerRpc::PlanStream(context, request);
  }
  grpc::ServerUnaryReactor* Validate(grpc::CallbackServerContext* context,
                                     const v1::ValidateRequest* request,
                                     v1::ValidateResponse* response) override {
    if (auto* refusal = Refusal("Validate", context)) return refusal;
    return PlannerRpc::Validate(context, request, response);
  }
  grpc::ServerUnaryReactor* Simulate(grpc::CallbackServerContext* context,
                                     const v1::SimulateRequest* request,
                                     v1::SimulateResponse* response) override {
    if (auto* refusal = Refusal("Simulate", context)) return refusal;
    return PlannerRpc::Simulate(context, request, response);
  }
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context,
                                    const v1::ExplainRequest* request,
                                    v1::ExplainResponse* response) override {
    if (auto* refusal = Refusal("Explain", context)) return refusal;
    return PlannerRpc::Explain(context, request, response);
  }
  grpc::ServerUnaryReactor* ListPlanners(grpc::CallbackServerContext* context,
                                         const v1::ListPlannersRequest* request,
                                         v1::ListPlannersResponse* response) override {
    if (auto* refusal = Refusal("ListPlanners", context)) return refusal;
    return PlannerRpc::ListPlanners(context, request, response);
  }

 private:
  struct RefusedStream : public grpc::ServerWriteReactor<v1::PlanStreamResponse> {
    explicit RefusedStream(const absl::Status& why) { Finish(ToGrpc(why)); }
    void OnDone() override { delete this; }
  };

  static std::string NameOf(absl::string_view method) {
    return absl::StrCat("/", v1::PlannerService::service_full_name(), "/", method);
  }

  // Null: the caller may.
  grpc::ServerUnaryReactor* Refusal(absl::string_view method,
                                    grpc::CallbackServerContext* context) const {
    const absl::Status status = door_->MayCall(*context, NameOf(method));
    if (status.ok()) return nullptr;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
};

class PoolPlanner : public FollowerPlanner {
 public:
  PoolPlanner(int threads, int queue, std::shared_ptr<Door> door, std::unique_ptr<Store> store)
      : door_(std::move(door)),
        store_(std::move(store)),
        cache_(
            [this](const v1::PlanRequest& request, SearchContext& context) {
              auto found = SearchPlan(request, context, profiles_, nullptr);
              if (found.ok()) found->version = std::nullopt;  // Kept by nobody.
              return found;
            },
            [] { return int64_t{0}; }, kCachedBytes),
        pool_(threads, queue) {}

  std::unique_ptr<grpc::Service> MakeService(const RequestBounds& bounds) override {
    return std::make_unique<BoundedService>(v1::PlannerService::service_full_name(), &rpc_, bounds,
                                            FollowersAnswer);
  }
  void CloseStreams() override { streams_.CloseAll(); }

 private:
  const std::shared_ptr<Door> door_;
  const std::unique_ptr<Store> store_;
  const ProfileStore profiles_{store_.get()};
  OpenStreams streams_;
  PlanCache cache_;  // Outlives the pool, whose threads answer to it.
  PlanningPool pool_;
  WithHandlers<CheckedRpc> rpc_{door_.get(), &pool_,          &cache_,   &streams_,
                                nullptr,     ServerFigures(), &profiles_};
};

}  // namespace

std::unique_ptr<FollowerPlanner> FollowerPlanner::Make(int threads, int queue,
                                                       std::shared_ptr<Door> door,
                                                       std::unique_ptr<Store> store) {
  return std::make_unique<PoolPlanner>(threads, queue, std::move(door), std::move(store));
}

}  // namespace stagewright
