#include "planner_service/service/plan_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stagewright {
namespace {

bool Suffices(PlanCache::Deadline flight, PlanCache::Deadline asked) {
  constexpr auto kNever = PlanCache::Deadline::max();
  if (flight == kNever || asked == kNever) return flight == asked;
  const auto now = SearchContext::Clock::now();
  return flight <= asked && flight - now >= (asked - now) / 2;
}

grpc::ByteBuffer Encoded(const v1::PlanResponse& response) {
  const grpc::Slice slice(response.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

PlanCache::PlanCache(Search search, Version version, int64_t most_bytes, OnUse on_use)
    : search_(std::move(search)),
      version_(std::move(version)),
      most_bytes_(most_bytes),
      on_use_(std::move(on_use)) {}

// With what the list and the map take for it.
int64_t PlanCache::Kept::bytes() const {
  return static_cast<int64_t>(question.size() + answer.Length() + sizeof(Kept) + 64);
}

void PlanCache::Count(Use use) const {
  if (on_use_) on_use_(use);
}

std::optional<grpc::ByteBuffer> PlanCache::FindKept(absl::string_view question) {
  const auto it = by_question_.find(question);
  if (it == by_question_.end()) return std::nullopt;
  const Ages::iterator kept = it->second;
  if (kept->version != version_()) {
    Drop(kept);
    return std::nullopt;
  }
  kept_.splice(kept_.begin(), kept_, kept);
  return kept->answer;
}

std::shared_ptr<PlanCache::Flight> PlanCache::FindFlight(absl::string_view question,
                                                         Deadline deadline) const {
  const auto it = std::find_if(flights_.begin(), flights_.end(), [&](const auto& flight) {
    return !flight->waiting.empty() && Suffices(flight->deadline, deadline) &&
           flight->question == question;
  });
  return it == flights_.end() ? nullptr : *it;
}

std::optional<grpc::ByteBuffer> PlanCache::Find(absl::string_view question) {
  std::optional<grpc::ByteBuffer> known;
  {
    absl::MutexLock lock(&mutex_);
    known = FindKept(question);
  }
  if (known.has_value()) Count(Use::kHit);
  return known;
}

int64_t PlanCache::Ask(PlanningPool& pool, std::string caller, absl::string_view question,
                       v1::PlanRequest request, Deadline deadline, const Done& done) {
  std::optional<grpc::ByteBuffer> known;
  std::shared_ptr<Flight> flight;
  int64_t ticket = 0;
  Use use = Use::kMiss;
  bool wants_turn = false;
  {
    absl::MutexLock lock(&mutex_);
    ticket = next_++;
    known = FindKept(question);
    if (known.has_value()) {
      use = Use::kHit;
    } else {
      flight = FindFlight(question, deadline);
      if (flight != nullptr) {
        use = Use::kShared;
      } else {
        flight = std::make_shared<Flight>(question, std::move(request), deadline);
        flights_.push_back(flight);
      }
      const auto& waiting = flight->waiting;
      wants_turn = !flight->begun &&
                   std::none_of(waiting.begin(), waiting.end(),
                                [&](const auto& other) { return other.second.caller == caller; });
      flight->waiting[ticket] = {caller, done};
    }
  }
  Count(use);
  if (use == Use::kHit) done(*std::move(known));
  if (wants_turn) {
    const auto give_up = [this, flight, caller](const absl::Status& full) {
      LeaveQueue(flight, caller, full);
    };
    const auto is_over = [this, flight] {
      absl::MutexLock lock(&mutex_);
      return flight->waiting.empty();
    };
    const absl::Status queued =
        pool.Submit({caller, [this, flight] { Run(flight); }, give_up, is_over});
    if (!queued.ok()) give_up(queued);
  }
  return ticket;
}

void PlanCache::LeaveQueue(const std::shared_ptr<Flight>& flight, const std::string& caller,
                           const absl::Status& full) {
  std::vector<Done> leaving;
  {
    absl::MutexLock lock(&mutex_);
    if (flight->begun) return;  // In the turn of another.
    for (auto it = flight->waiting.begin(); it != flight->waiting.end();) {
      if (it->second.caller != caller) {
        ++it;
        continue;
      }
      leaving.push_back(std::move(it->second.done));
      it = flight->waiting.erase(it);
    }
    if (flight->waiting.empty()) {
      flight->begun = true;
      flights_.erase(std::find(flights_.begin(), flights_.end(), flight));
    }
  }
  for (const Done& done : leaving) done(full);
}

void PlanCache::Run(const std::shared_ptr<Flight>& flight) {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(flight->begun, true)) return;
  }
  absl::StatusOr<Found> found = search_(flight->request, flight->context);
  if (!found.ok()) return Land(flight, found.status());
  const Answer answer = Encoded(found->response);
  if (found->version.has_value() && !flight->context.Stopped()) {
    found->response.set_cached(true);
    Kept again = {flight->question, Encoded(found->response), *found->version};
    absl::MutexLock lock(&mutex_);
    Keep(std::move(again));
  }
  Land(flight, answer);
}

void PlanCache::Land(const std::shared_ptr<Flight>& flight, const Answer& answer) {
  std::map<int64_t, Waiter> waiting;
  {
    absl::MutexLock lock(&mutex_);
    flights_.erase(std::find(flights_.begin(), flights_.end(), flight));
    waiting.swap(flight->waiting);
  }
  for (const auto& [ticket, waiter] : waiting) waiter.done(answer);
}

void PlanCache::Keep(Kept kept) {
  if (kept.bytes() > most_bytes_) return;
  // Another search of it, with more or less time, may have ended before.
  if (const auto it = by_question_.find(kept.question); it != by_question_.end()) Drop(it->second);
  bytes_ += kept.bytes();
  kept_.push_front(std::move(kept));
  by_question_[kept_.front().question] = kept_.begin();
  while (bytes_ > most_bytes_) Drop(std::prev(kept_.end()));
}

void PlanCache::Drop(Ages::iterator kept) {
  bytes_ -= kept->bytes();
  by_question_.erase(kept->question);
  kept_.erase(kept);
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
