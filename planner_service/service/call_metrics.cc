#include "planner_service/service/call_metrics.h"

#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/clock/steady_now.h"
#include "planner_service/access/roles.h"

namespace stagewright {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;

// "WatchJob" of "/stagewright.v1.JobService/WatchJob". What callers make up is one method: each
// would have series of its own, for as long as the planner runs.
std::string MethodName(absl::string_view path) {
  if (!IsDecided(path)) return "unknown";
  return std::string(path.substr(path.rfind('/') + 1));
}

// Lives as long as its call.
class CallCounter : public Interceptor {
 public:
  CallCounter(PlannerMetrics* metrics, std::string method)
      : metrics_(metrics), method_(std::move(method)), start_(SteadyNow()) {
    metrics_->CountOpen(method_, 1);
  }

  ~CallCounter() override {
    metrics_->CountOpen(method_, -1);
    if (!counted_) Count(absl::StatusCode::kCancelled);  // The client went before a status came.
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS))
      Count(static_cast<absl::StatusCode>(methods->GetSendStatus().error_code()));
    methods->Proceed();
  }

 private:
  // Before the status is sent, so that who has an answer finds it counted.
  void Count(absl::StatusCode code) {
    counted_ = true;
    metrics_->CountCall(method_, absl::StatusCodeToString(code),
                        absl::ToDoubleSeconds(SteadyNow() - start_));
  }

  PlannerMetrics* const metrics_;
  const std::string method_;
  const absl::Time start_;
  bool counted_ = false;
};

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(PlannerMetrics* metrics) : metrics_(metrics) {}

  Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    return new CallCounter(metrics_, MethodName(info->method()));
  }

 private:
  PlannerMetrics* const metrics_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CountCalls(
    PlannerMetrics* metrics) {
  return std::make_unique<Factory>(metrics);
}

}  // namespace stagewright
