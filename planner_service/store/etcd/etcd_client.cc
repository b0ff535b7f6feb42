#include "planner_service/store/etcd/etcd_client.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/clock/steady_now.h"

namespace stagewright {
namespace {

constexpr absl::string_view kScheme = "etcd://";
// Members answer reads in milliseconds; one that stands still, as with a machine that hangs, does
// not for as long as connections last.
constexpr absl::Duration kAskNextAfter = absl::Milliseconds(500);

absl::Status FromGrpc(const grpc::Status& status, const std::string& endpoint, const char* what) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("etcd at ", endpoint, ": ", what, ": ", status.error_message()));
}

}  // namespace

bool IsEtcdPlace(absl::string_view text) { return absl::StartsWith(text, kScheme); }

absl::StatusOr<EtcdPlace> ParseEtcdPlace(absl::string_view text) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\": ", why, "; expected etcd://HOST:PORT[,HOST:PORT...][/PREFIX]"));
  };
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, kScheme)) return wrong("is no etcd address");
  EtcdPlace place;
  const size_t slash = rest.find('/');
  if (absl::StrContains(rest.substr(0, slash), '@')) {  // Not to be repeated in logs.
    return absl::InvalidArgumentError(
        "etcd://...@...: no user and no password are taken; expected "
        "etcd://HOST:PORT[,HOST:PORT...][/PREFIX], and --etcd-cert where etcd asks who calls");
  }
  place.prefix = slash == absl::string_view::npos ? "/" : std::string(rest.substr(slash));
  for (absl::string_view endpoint : absl::StrSplit(rest.substr(0, slash), ',')) {
    const size_t colon = endpoint.rfind(':');
    int port = 0;
    if (colon == absl::string_view::npos || colon == 0 ||
        !absl::SimpleAtoi(endpoint.substr(colon + 1), &port) || port < 1 || port > 65535)
      return wrong(absl::StrCat("\"", endpoint, "\" is not HOST:PORT"));
    place.endpoints.emplace_back(endpoint);
  }
  return place;
}

EtcdClient::EtcdClient(const EtcdPlace& place, absl::Duration patience,
                       std::shared_ptr<grpc::ChannelCredentials> credentials)
    : patience_(patience) {
  if (credentials == nullptr) credentials = grpc::InsecureChannelCredentials();
  for (const std::string& endpoint : place.endpoints) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // Whatever the environment names.
    const auto channel = grpc::CreateCustomChannel(endpoint, credentials, arguments);
    members_.push_back({endpoint, etcdserverpb::KV::NewStub(channel),
                        etcdserverpb::Lease::NewStub(channel),
                        etcdserverpb::Watch::NewStub(channel)});
  }
}

template <typename Call>
absl::Status EtcdClient::Try(const char* what, Call call) {
  absl::Status status;
  const absl::Time deadline = SteadyNow() + patience_;
  for (size_t tries = 0; tries < members_.size(); ++tries) {
    const size_t index = present_;
    const Member& member = members_[index];
    grpc::ClientContext context;
    context.set_deadline(ClockIn(deadline - SteadyNow()));
    status = FromGrpc(call(member, context), member.endpoint, what);
    const bool silent = absl::IsDeadlineExceeded(status);
    if (!silent && !absl::IsUnavailable(status)) return status;
    Move(index, (index + 1) % members_.size());
    if (silent) return status;  // There is no time left.
  }
  return status;
}

void EtcdClient::Move(size_t from, size_t to) { present_.compare_exchange_strong(from, to); }

// A read that one member was asked.
struct EtcdClient::Question {
  size_t member = 0;
  grpc::ClientContext context;
  etcdserverpb::RangeResponse response;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<etcdserverpb::RangeResponse>> reader;
};

absl::StatusOr<etcdserverpb::RangeResponse> EtcdClient::Range(
    const etcdserverpb::RangeRequest& request) {
  const absl::Time deadline = SteadyNow() + patience_;
  const size_t first = present_;
  grpc::CompletionQueue answers;
  std::vector<std::unique_ptr<Question>> asked;
  size_t unanswered = 0;
  const auto ask_next = [&] {
    Question& next = *asked.emplace_back(std::make_unique<Question>());
    next.member = (first + asked.size() - 1) % members_.size();
    next.context.set_deadline(ClockIn(deadline - SteadyNow()));
    next.reader = members_[next.member].kv->AsyncRange(&next.context, request, &answers);
    next.reader->Finish(&next.response, &next.status, &next);
    ++unanswered;
  };
  ask_next();
  absl::Status status;
  Question* answer = nullptr;
  while (answer == nullptr && unanswered > 0) {
    const bool more = asked.size() < members_.size();
    void* tag = nullptr;
    bool ok = false;
    const absl::Duration patience = more ? kAskNextAfter : absl::InfiniteDuration();
    const auto event = answers.AsyncNext(&tag, &ok, ClockIn(patience));
    if (event == grpc::CompletionQueue::GOT_EVENT) {
      --unanswered;
      auto* one = static_cast<Question*>(tag);
      const absl::Status its = FromGrpc(one->status, members_[one->member].endpoint, "Range");
      if (!absl::IsDeadlineExceeded(its) && !absl::IsUnavailable(its)) answer = one;
      // That it may be too much to read says more than that another member is away.
      if (answer != nullptr || !absl::IsDeadlineExceeded(status)) status = its;
    }
    if (answer == nullptr && more) ask_next();
  }
  for (const auto& one : asked) one->context.TryCancel();
  answers.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (answers.Next(&tag, &ok)) {
  }
  Move(first, answer == nullptr ? (first + 1) % members_.size() : answer->member);
  RETURN_IF_ERROR(status);
  return std::move(answer->response);
}

absl::Status EtcdClient::Put(const etcdserverpb::PutRequest& request) {
  etcdserverpb::PutResponse response;
  return Try("Put", [&](const Member& member, grpc::ClientContext& context) {
    return member.kv->Put(&context, request, &response);
  });
}

absl::Status EtcdClient::DeleteRange(const etcdserverpb::DeleteRangeRequest& request) {
  etcdserverpb::DeleteRangeResponse response;
  return Try("DeleteRange", [&](const Member& member, grpc::ClientContext& context) {
    return member.kv->DeleteRange(&context, request, &response);
  });
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdClient::Txn(const etcdserverpb::TxnRequest& request) {
  etcdserverpb::TxnResponse response;
  RETURN_IF_ERROR(Try("Txn", [&](const Member& member, grpc::ClientContext& context) {
    return member.kv->Txn(&context, request, &response);
  }));
  return response;
}

absl::StatusOr<EtcdLease> EtcdClient::GrantLease(absl::Duration ttl) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(absl::ToInt64Seconds(absl::Ceil(ttl, absl::Seconds(1))));
  etcdserverpb::LeaseGrantResponse response;
  RETURN_IF_ERROR(Try("LeaseGrant", [&](const Member& member, grpc::ClientContext& context) {
    return member.lease->LeaseGrant(&context, request, &response);
  }));
  return EtcdLease{response.id(), absl::Seconds(response.ttl())};
}

absl::Status EtcdClient::KeepLease(int64_t lease) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseKeepAliveResponse response;
  RETURN_IF_ERROR(Try("LeaseKeepAlive", [&](const Member& member, grpc::ClientContext& context) {
    const auto stream = member.lease->LeaseKeepAlive(&context);
    stream->Write(request);  // What became of it, reading says.
    stream->WritesDone();
    const bool answered = stream->Read(&response);
    const grpc::Status status = stream->Finish();
    return answered
               ? grpc::Status::OK
               : (status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "no answer") : status);
  }));
  if (response.ttl() > 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("etcd: the lease ", lease, " is over"));
}

absl::Status EtcdClient::RevokeLease(int64_t lease) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseRevokeResponse response;
  return Try("LeaseRevoke", [&](const Member& member, grpc::ClientContext& context) {
    return member.lease->LeaseRevoke(&context, request, &response);
  });
}

}  // namespace stagewright
