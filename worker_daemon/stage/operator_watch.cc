#include "worker_daemon/stage/operator_watch.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <chrono>
#include <memory>

namespace stagewright {
namespace {

thread_local OperatorWatch* current = nullptr;

int64_t Now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

struct Begun : at::ObserverContext {
  int64_t at = 0;
};

}  // namespace

// What LibTorch calls, which takes functions without state.
class BackwardTimer {
 public:
  static std::unique_ptr<at::ObserverContext> Begin(const at::RecordFunction& /*function*/) {
    auto begun = std::make_unique<Begun>();
    begun->at = Now();
    return begun;
  }
  static void End(const at::RecordFunction& function, at::ObserverContext* context) {
    if (current == nullptr || context == nullptr) return;
    current->EndBackward(function.seqNr(), Nanos(Now() - static_cast<Begun*>(context)->at));
  }
};

OperatorWatch::Scope::Scope(OperatorWatch* watch, StageId stage, int64_t samples, Pass pass)
    : watch_(watch) {
  if (watch_ == nullptr) return;
  watch_->stage_ = stage;
  watch_->samples_ = samples;
  current = watch_;
  if (pass == Pass::kForward) return;
  if (pass == Pass::kBackward) ++watch_->backwards_[{stage, samples}];
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&BackwardTimer::Begin, &BackwardTimer::End)
          .scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

OperatorWatch::Scope::~Scope() {
  if (watch_ == nullptr) return;
  if (callback_ != 0) at::removeCallback(callback_);
  current = nullptr;
}

OperatorWatch::Running::Running(NodeId node) : node_(node) {
  if (current == nullptr) return;
  first_ = at::sequence_number::peek();
  start_ = Now();
}

OperatorWatch::Running::~Running() {
  if (current == nullptr) return;
  const int64_t end = Now();
  current->EndForward(node_, Nanos(end - start_), first_, at::sequence_number::peek());
}

void OperatorWatch::EndForward(NodeId node, Nanos time, uint64_t first, uint64_t end) {
  const Key key(stage_, node, samples_);
  OperatorTimes& times = times_[key];
  ++times.forwards;
  times.forward += time;
  for (uint64_t number = first; number < end; ++number) made_by_.insert_or_assign(number, key);
}

void OperatorWatch::EndBackward(int64_t number, Nanos time) {
  const auto made = made_by_.find(static_cast<uint64_t>(number));
  if (made != made_by_.end()) times_[made->second].backward += time;
}

std::vector<OperatorTimes> OperatorWatch::Take() {
  std::vector<OperatorTimes> taken;
  for (auto& [key, times] : times_) {
    std::tie(times.stage, times.node, times.samples) = key;
    const auto backwards = backwards_.find({times.stage, times.samples});
    if (backwards != backwards_.end()) times.backwards = backwards->second;
    taken.push_back(times);
  }
  times_.clear();
  made_by_.clear();
  backwards_.clear();
  return taken;
}

}  // namespace stagewright
