#include "planner_service/intake/message_budget.h"

#include "common/wire/message_memory.h"

namespace stagewright {

MessageBudget::Claim MessageBudget::Take(const google::protobuf::Descriptor* type,
                                         absl::string_view bytes) {
  if (bytes.size() <= kUncounted) return {};
  const size_t memory = MessageMemory(type, bytes, most_of_message_);
  if (memory > most_of_message_) return {Answer::kTooLarge, 0};
  const size_t most_held = memory <= kSmall ? most() : most() - most() / 8;
  absl::MutexLock lock(&mutex_);
  if (held_ + memory > most_held) return {Answer::kFull, 0};
  held_ += memory;
  return {Answer::kTaken, memory};
}

void MessageBudget::GiveBack(size_t taken) {
  if (taken == 0) return;
  absl::MutexLock lock(&mutex_);
  held_ -= taken;
}

size_t MessageBudget::held() const {
  absl::MutexLock lock(&mutex_);
  return held_;
}

}  // namespace stagewright
