#include "planner_service/service/plan_cache.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <utility>

namespace stagewright {
namespace {

// Equal messages have equal bytes in one process.
std::string BytesOf(const v1::PlanRequest& request) {
  std::string bytes;
  google::protobuf::io::StringOutputStream out(&bytes);
  google::protobuf::io::CodedOutputStream coded(&out);
  coded.SetSerializationDeterministic(true);
  request.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

bool Suffices(PlanCache::Deadline flight, PlanCache::Deadline asked) {
  constexpr auto kNever = PlanCache::Deadline::max();
  if (flight == kNever || asked == kNever) return flight == asked;
  const auto now = SearchContext::Clock::now();
  return flight <= asked && flight - now >= (asked - now) / 2;
}

}  // namespace

PlanCache::PlanCache(Search search, int64_t most_bytes, OnUse on_use)
    : search_(std::move(search)), most_bytes_(most_bytes), on_use_(std::move(on_use)) {}

std::shared_ptr<PlanCache::Flight> PlanCache::FindFlight(const std::string& question,
                                                         Deadline deadline) const {
  const auto it = std::find_if(flights_.begin(), flights_.end(), [&](const auto& flight) {
    return !flight->waiting.empty() && Suffices(flight->deadline, deadline) &&
           flight->question == question;
  });
  return it == flights_.end() ? nullptr : *it;
}

int64_t PlanCache::Ask(PlanningPool& pool, const v1::PlanRequest& request, Deadline deadline,
                       Done done) {
  std::string question = BytesOf(request);
  std::shared_ptr<const v1::PlanResponse> known;
  std::shared_ptr<Flight> begun;
  int64_t ticket = 0;
  Use use = Use::kMiss;
  {
    absl::MutexLock lock(&mutex_);
    ticket = next_++;
    if (const auto it = kept_.find(question); it != kept_.end()) {
      ages_.splice(ages_.begin(), ages_, it->second.age);
      known = it->second.answer;
      use = Use::kHit;
    } else if (const auto flight = FindFlight(question, deadline)) {
      flight->waiting[ticket] = std::move(done);
      use = Use::kShared;
    } else {
      begun = std::make_shared<Flight>(std::move(question), deadline);
      begun->waiting[ticket] = std::move(done);
      flights_.push_back(begun);
    }
  }
  if (on_use_) on_use_(use);
  if (known != nullptr) {
    done(Answer(std::move(known)));
  } else if (begun != nullptr) {
    const auto copy = std::make_shared<const v1::PlanRequest>(request);
    const absl::Status queued = pool.Submit([this, begun, copy] { Run(begun, *copy); });
    if (!queued.ok()) Land(begun, queued);
  }
  return ticket;
}

void PlanCache::Run(const std::shared_ptr<Flight>& flight, const v1::PlanRequest& request) {
  absl::StatusOr<v1::PlanResponse> found = search_(request, flight->context);
  if (!found.ok()) return Land(flight, found.status());
  Land(flight, std::make_shared<const v1::PlanResponse>(*std::move(found)));
}

void PlanCache::Land(const std::shared_ptr<Flight>& flight, const Answer& answer) {
  std::map<int64_t, Done> waiting;
  {
    absl::MutexLock lock(&mutex_);
    flights_.erase(std::find(flights_.begin(), flights_.end(), flight));
    waiting.swap(flight->waiting);
    if (answer.ok() && !flight->context.Stopped()) {
      v1::PlanResponse again = **answer;
      again.set_cached(true);
      Keep(flight->question, std::make_shared<const v1::PlanResponse>(std::move(again)));
    }
  }
  for (const auto& [ticket, done] : waiting) done(answer);
}

void PlanCache::Keep(const std::string& question, std::shared_ptr<const v1::PlanResponse> answer) {
  const auto size = static_cast<int64_t>(question.size() * 2 + answer->SpaceUsedLong());
  if (size > most_bytes_ || kept_.contains(question)) return;
  ages_.push_front(question);
  kept_[question] = {std::move(answer), size, ages_.begin()};
  bytes_ += size;
  while (bytes_ > most_bytes_) {
    const auto oldest = kept_.find(ages_.back());
    bytes_ -= oldest->second.bytes;
    kept_.erase(oldest);
    ages_.pop_back();
  }
}

bool PlanCache::Cancel(int64_t ticket) {
  absl::MutexLock lock(&mutex_);
  for (const auto& flight : flights_) {
    if (flight->waiting.erase(ticket) == 0) continue;
    if (flight->waiting.empty()) flight->context.Cancel();
    return true;
  }
  return false;
}

int64_t PlanCache::bytes() const {
  absl::MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace stagewright
