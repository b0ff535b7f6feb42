#include "worker_daemon/effects/input_prefetch.h"

#include <algorithm>
#include <map>
#include <utility>

namespace stagewright {
namespace {

bool IsFor(const InputLoad& load, InputId input, std::span<const int64_t> samples) {
  return load.input == input && std::ranges::equal(load.samples(), samples);
}

}  // namespace

InputPrefetch::InputPrefetch(Gather gather)
    : gather_(std::move(gather)), thread_([this] { Run(); }) {}

InputPrefetch::~InputPrefetch() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_ = true;
  }
  thread_.join();
}

void InputPrefetch::Expect(std::vector<InputLoad> loads) {
  Entries entries;
  for (InputLoad& load : loads) {
    entries.push_back(std::make_shared<Entry>());
    entries.back()->load = std::move(load);
  }
  absl::MutexLock lock(&mutex_);
  for (std::shared_ptr<Entry>& begun : entries_) {
    if (begun->state == State::kWaiting) continue;
    const auto same = std::ranges::find_if(entries, [&](const std::shared_ptr<Entry>& entry) {
      return entry->state == State::kWaiting &&
             IsFor(entry->load, begun->load.input, begun->load.samples());
    });
    if (same != entries.end()) *same = std::move(begun);
  }
  entries_.swap(entries);
  changed_ = true;
}

at::Tensor InputPrefetch::Take(InputId input, std::span<const int64_t> samples) {
  absl::MutexLock lock(&mutex_);
  const auto found = std::ranges::find_if(entries_, [&](const std::shared_ptr<Entry>& entry) {
    return IsFor(entry->load, input, samples);
  });
  if (found == entries_.end()) return {};
  const std::shared_ptr<Entry> entry = *found;
  const auto passed = std::remove_if(
      entries_.begin(), found,
      [&](const std::shared_ptr<Entry>& before) { return before->load.input == input; });
  entries_.erase(passed, std::next(found));
  changed_ = true;
  if (entry->state == State::kWaiting) return {};
  mutex_.Await(absl::Condition(entry.get(), &Entry::IsGathered));
  return std::move(entry->gathered);
}

std::shared_ptr<InputPrefetch::Entry> InputPrefetch::Next() {
  std::map<InputId, int32_t> ahead;
  for (const std::shared_ptr<Entry>& entry : entries_) {
    if (entry->state != State::kWaiting) ++ahead[entry->load.input];
  }
  for (const std::shared_ptr<Entry>& entry : entries_) {
    if (entry->state == State::kWaiting && ahead[entry->load.input] < kAhead) return entry;
  }
  return nullptr;
}

void InputPrefetch::Run() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(&changed_));
    if (stopping_) return;
    const std::shared_ptr<Entry> entry = Next();
    changed_ = entry != nullptr;
    if (entry == nullptr) continue;
    entry->state = State::kGathering;
    mutex_.Unlock();
    absl::StatusOr<at::Tensor> gathered = gather_(entry->load.input, entry->load.samples());
    mutex_.Lock();
    if (gathered.ok()) entry->gathered = *std::move(gathered);
    entry->state = State::kGathered;
  }
}

}  // namespace stagewright
