#include "planner_service/election/current_answers.h"

#include <utility>

#include "absl/status/status.h"
#include "planner_service/service/rpc.h"

namespace stagewright {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;

// Asks when all of the answer is known: no other planner leads before it is false.
class AnswerCheck : public Interceptor {
 public:
  explicit AnswerCheck(const std::function<bool()>& leads) : leads_(leads) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS) && !leads_())
      methods->ModifySendStatus(
          ToGrpc(absl::UnavailableError("this planner leads no more: ask again")));
    methods->Proceed();
  }

 private:
  const std::function<bool()>& leads_;
};

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(std::function<bool()> leads) : leads_(std::move(leads)) {}

  Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* /*info*/) override {
    return new AnswerCheck(leads_);
  }

 private:
  const std::function<bool()> leads_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> OnlyCurrentAnswers(
    std::function<bool()> leads) {
  return std::make_unique<Factory>(std::move(leads));
}

}  // namespace stagewright
