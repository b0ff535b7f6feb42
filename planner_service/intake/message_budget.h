// How much memory messages may take: one of them, and all that are held at once.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstddef>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace stagewright {

// Thread-safe.
class MessageBudget {
 public:
  // A message may take so many times the memory of the largest that is read. Graphs take about ten
  // times their own bytes.
  static constexpr size_t kMostOfMessage = 16;
  // All may take so many times the most of one.
  static constexpr size_t kMessages = 2;
  // So many bytes on the wire are not counted: nobody holds many messages of that kind.
  static constexpr size_t kUncounted = size_t{4} << 10;
  // Messages that take no more memory than that are small. An eighth of the budget is for them
  // alone, so that large ones of others do not keep them out.
  static constexpr size_t kSmall = size_t{1} << 20;

  // For messages of so many bytes at most.
  explicit MessageBudget(size_t largest) : most_of_message_(largest * kMostOfMessage) {}

  enum class Answer {
    kTaken,
    kTooLarge,  // By itself.
    kFull,      // Beside those that are held; it may fit later.
  };
  struct Claim {
    Answer answer = Answer::kTaken;
    size_t taken = 0;  // To be given back.
  };
  // What a message of this type, of which these are the bytes, will take (MessageMemory). O(bytes).
  Claim Take(const google::protobuf::Descriptor* type, absl::string_view bytes);
  void GiveBack(size_t taken);

  size_t most_of_message() const { return most_of_message_; }
  size_t most() const { return most_of_message_ * kMessages; }
  size_t held() const;

 private:
  const size_t most_of_message_;
  mutable absl::Mutex mutex_;
  size_t held_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace stagewright
