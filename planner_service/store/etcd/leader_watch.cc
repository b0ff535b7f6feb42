#include "planner_service/store/etcd/leader_watch.h"

#include <grpcpp/grpcpp.h>

#include <functional>
#include <utility>

#include "common/clock/steady_wait.h"
#include "planner_service/store/etcd/etcd_election.h"

namespace stagewright {
namespace {

constexpr absl::Duration kAgain = absl::Milliseconds(250);  // Between attempts to watch.

}  // namespace

// Changes of one key from a revision on.
class LeaderWatch::Stream
    : public grpc::ClientBidiReactor<etcdserverpb::WatchRequest, etcdserverpb::WatchResponse> {
 public:
  using Heard = std::function<void(const etcdserverpb::WatchResponse&)>;

  Stream(etcdserverpb::Watch::Stub& watches, const std::string& key, int64_t revision, Heard heard)
      : heard_(std::move(heard)) {
    // A member that knows no leader of the cluster hears nothing: it ends the stream.
    context_.AddMetadata("hasleader", "true");
    watches.async()->Watch(&context_, this);
    request_.mutable_create_request()->set_key(key);
    request_.mutable_create_request()->set_start_revision(revision);
    AddHold();  // What Attend asks is no reaction.
    StartWrite(&request_);
    StartRead(&response_);
    StartCall();
  }

  // Until the stream is over.
  void Attend(absl::Duration patience) {
    bool asked = false;
    for (Word word = Await(patience); word != Word::kEnd; word = Await(patience)) {
      if (word == Word::kSilence && (asked || !MayWrite())) break;
      asked = word == Word::kSilence;
      if (!asked) continue;
      request_.mutable_progress_request();
      StartWrite(&request_);
    }
    context_.TryCancel();
    RemoveHold();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&done_));
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    const bool over = !ok || response_.canceled();
    if (!over) heard_(response_);
    {
      absl::MutexLock lock(&mutex_);
      spoken_ = true;
      over_ = over;
    }
    if (!over) StartRead(&response_);
  }
  void OnWriteDone(bool /*ok*/) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
  }
  void OnDone(const grpc::Status& /*status*/) override {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }

 private:
  enum class Word { kHeard, kSilence, kEnd };

  Word Await(absl::Duration patience) {
    absl::MutexLock lock(&mutex_);
    if (!AwaitFor(mutex_, absl::Condition(&spoken_), patience)) return Word::kSilence;
    spoken_ = false;
    return over_ ? Word::kEnd : Word::kHeard;
  }
  bool MayWrite() {
    absl::MutexLock lock(&mutex_);
    return !std::exchange(writing_, true);
  }

  const Heard heard_;
  grpc::ClientContext context_;
  etcdserverpb::WatchRequest request_;
  etcdserverpb::WatchResponse response_;
  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = true;
  bool spoken_ ABSL_GUARDED_BY(mutex_) = false;  // Since the last look.
  bool over_ ABSL_GUARDED_BY(mutex_) = false;    // Nothing is read any more.
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

LeaderWatch::LeaderWatch(std::shared_ptr<EtcdClient> client, const std::string& prefix,
                         absl::Duration patience)
    : client_(std::move(client)), key_(LeaderKey(prefix)), patience_(patience) {
  thread_ = std::thread([this] { Run(); });
}

LeaderWatch::~LeaderWatch() {
  stop_.Notify();
  {
    absl::MutexLock lock(&mutex_);
    if (stream_ != nullptr) stream_->Cancel();
  }
  thread_.join();
}

std::optional<std::string> LeaderWatch::leader() const {
  absl::MutexLock lock(&mutex_);
  return leader_;
}

void LeaderWatch::AwaitChange(absl::Duration at_most) {
  absl::MutexLock lock(&mutex_);
  AwaitFor(mutex_, absl::Condition(&changed_), at_most);
  changed_ = false;
}

void LeaderWatch::Wake() {
  absl::MutexLock lock(&mutex_);
  changed_ = true;
}

void LeaderWatch::Set(std::optional<std::string> leader) {
  absl::MutexLock lock(&mutex_);
  changed_ = changed_ || leader != leader_;
  leader_ = std::move(leader);
}

void LeaderWatch::Run() {
  do {
    Hear();
    Set(std::nullopt);
  } while (!stop_.WaitFor(kAgain));
}

void LeaderWatch::Hear() {
  etcdserverpb::RangeRequest request;
  request.set_key(key_);
  const auto found = client_->Range(request);
  if (!found.ok()) return;  // Who asks LeaderOf hears why.
  std::string leader = found->kvs().empty() ? "" : found->kvs(0).value();
  Stream stream(client_->watches(), key_, found->header().revision() + 1,
                [&](const etcdserverpb::WatchResponse& response) {
                  for (const etcdserverpb::Event& event : response.events())
                    leader = event.type() == etcdserverpb::Event::PUT ? event.kv().value() : "";
                  Set(leader);
                });
  {
    absl::MutexLock lock(&mutex_);
    stream_ = &stream;
    if (stop_.HasBeenNotified()) stream.Cancel();
  }
  stream.Attend(patience_);
  absl::MutexLock lock(&mutex_);
  stream_ = nullptr;
}

}  // namespace stagewright
