#include "planner_service/election/relay.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/auth_context.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "planner_service/access/relayed_caller.h"
#include "planner_service/service/rpc.h"

namespace stagewright {
namespace {

constexpr char kCredentials[] = "authorization";
constexpr char kPassedOn[] = "stagewright-passed-on";

absl::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

// What gRPC itself sets anew.
bool IsTransports(absl::string_view key) {
  return absl::StartsWith(key, ":") || absl::StartsWith(key, "grpc-") || key == "user-agent" ||
         key == "content-type" || key == "te" || key == "host";
}

// Whether gRPC sends it: it takes in more than that, and ends the process that passes it on.
bool MayBeSent(const grpc::string_ref& key, const grpc::string_ref& value) {
  const grpc_slice name = grpc_slice_from_static_buffer(key.data(), key.size());
  return grpc_header_key_is_legal(name) != 0 &&
         (grpc_is_binary_header(name) != 0 ||
          grpc_header_nonbin_value_is_legal(
              grpc_slice_from_static_buffer(value.data(), value.size())) != 0);
}

// The caller's credentials, and who it is by its certificate and address. Nothing else that it says
// is needed, nor its to say where the leader believes planners only.
void DescribeCaller(const grpc::GenericCallbackServerContext& call, grpc::ClientContext& onward) {
  const auto [first, last] = call.client_metadata().equal_range(kCredentials);
  for (auto it = first; it != last; ++it) {
    if (MayBeSent(it->first, it->second))
      onward.AddMetadata(kCredentials, {it->second.data(), it->second.size()});
  }
  onward.AddMetadata(kPassedOn, "1");
  onward.AddMetadata(kCallerPeer, call.peer());
  const auto context = call.auth_context();
  if (context == nullptr || !context->IsPeerAuthenticated()) return;
  for (const grpc::string_ref& uri : context->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME))
    onward.AddMetadata(kCallerUri, std::string(uri.data(), uri.size()));
}

// The leader's own words, or why it has none: whoever asked has reached a planner.
grpc::Status Told(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE || !status.error_details().empty())
    return status;
  return ToGrpc(
      absl::UnavailableError(absl::StrCat("the planner that leads: ", status.error_message())));
}

class Refusal : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const char* why) { Finish(ToGrpc(absl::UnavailableError(why))); }
  void OnDone() override { delete this; }
};

// One call: what the client sends goes up, what the leader answers comes down. At most one message
// is under way in each direction, so a slow reader slows down the writer.
class RelayedCall : public grpc::ServerGenericBidiReactor {
 public:
  RelayedCall(grpc::GenericCallbackServerContext* context,
              const std::shared_ptr<grpc::Channel>& channel,
              std::shared_ptr<grpc::ClientContext> onward, std::function<void()> over)
      : context_(context),
        stub_(channel),
        onward_(std::move(onward)),
        over_(std::move(over)),
        up_(this) {
    DescribeCaller(*context, *onward_);
    onward_->set_deadline(context->deadline());
    stub_.PrepareBidiStreamingCall(onward_.get(), context->method(), {}, &up_);
    // Until nothing comes down any more: reactions that are not the leader's start messages, too.
    up_.AddHold();
    up_.StartCall();
    up_.StartRead(&answer_);
    StartRead(&question_);
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (!up_is_open_) return;
    if (ok) {
      up_.StartWrite(&question_);
    } else {
      up_.StartWritesDone();
    }
  }
  void OnWriteDone(bool ok) override {
    if (!ok) onward_->TryCancel();
    up_.StartRead(&answer_);  // To the end, which is what gives the hold back.
  }
  void OnCancel() override {
    cancelled_ = true;
    onward_->TryCancel();
  }
  void OnDone() override {
    over_();
    delete this;
  }

 private:
  class Up : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit Up(RelayedCall* call) : call_(call) {}
    void OnWriteDone(bool ok) override {
      if (ok) call_->StartRead(&call_->question_);
    }
    void OnReadDone(bool ok) override {
      if (ok) {
        call_->StartWrite(&call_->answer_);
        return;
      }
      absl::MutexLock lock(&call_->mutex_);
      call_->up_is_open_ = false;
      RemoveHold();
    }
    void OnDone(const grpc::Status& status) override {
      for (const auto& [key, value] : call_->onward_->GetServerTrailingMetadata()) {
        if (!IsTransports(View(key)) && MayBeSent(key, value))
          call_->context_->AddTrailingMetadata(std::string(View(key)), std::string(View(value)));
      }
      // A server that goes away cancels what it has not answered: that is no wish of the client.
      const bool left = status.error_code() == grpc::StatusCode::CANCELLED && !call_->cancelled_;
      call_->Finish(left ? ToGrpc(absl::UnavailableError("the planner that leads ended the call"))
                         : Told(status));  // With it the call may go.
    }

   private:
    RelayedCall* const call_;
  };

  grpc::GenericCallbackServerContext* const context_;
  grpc::GenericStub stub_;
  const std::shared_ptr<grpc::ClientContext> onward_;
  const std::function<void()> over_;
  grpc::ByteBuffer question_, answer_;
  std::atomic<bool> cancelled_ = false;
  absl::Mutex mutex_;
  bool up_is_open_ ABSL_GUARDED_BY(mutex_) = true;
  Up up_;
};

}  // namespace

grpc::ServerGenericBidiReactor* Relay::CreateReactor(grpc::GenericCallbackServerContext* context) {
  if (context->client_metadata().count(kPassedOn) > 0)
    return new Refusal("the planner that led does not lead any more");
  const auto onward = std::make_shared<grpc::ClientContext>();
  Leader leader = target_();
  const auto may_go = [&] {
    absl::MutexLock lock(&mutex_);
    return leader.epoch >= epoch_ && calls_.emplace(onward, leader.epoch).second;
  };
  while (leader.channel != nullptr && !may_go()) leader = target_();  // It changed just now.
  if (leader.channel == nullptr) return new Refusal("no planner leads at the moment");
  return new RelayedCall(context, leader.channel, onward, [this, onward] {
    absl::MutexLock lock(&mutex_);
    calls_.erase(onward);
  });
}

void Relay::EndCallsBefore(int64_t epoch) {
  std::vector<Onward> ended;
  {
    absl::MutexLock lock(&mutex_);
    epoch_ = epoch;
    for (const auto& [onward, of] : calls_)
      if (of < epoch) ended.push_back(onward);
  }
  // Without the lock: a call that ends here comes back for it.
  for (const Onward& onward : ended) onward->TryCancel();
}

}  // namespace stagewright
