// A large message with the bytes that it is kept and sent as and what these are known by, made
// once: whoever stores, sends or names it later, perhaps under a lock, only copies.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace google::protobuf {
class MessageLite;
}  // namespace google::protobuf

namespace stagewright {

struct Seal {
  std::string bytes;
  std::string hash;  // ContentHash of them.
};

// The same bytes for the same message, as far as one version of protobuf goes. O(message).
Seal SealOf(const google::protobuf::MessageLite& message);

// As a pointer to a constant message, which may be null; copies share it.
template <typename Message>
class Sealed {
 public:
  Sealed() = default;
  // O(message): not under a lock.
  explicit Sealed(Message message)
      : content_(std::make_shared<const Content>(std::move(message))) {}

  const Message& operator*() const { return content_->message; }
  const Message* operator->() const { return &content_->message; }
  bool operator==(std::nullptr_t) const { return content_ == nullptr; }
  void reset() { content_.reset(); }

  // Null if there is no message.
  const Seal* seal() const { return content_ == nullptr ? nullptr : &content_->seal; }

 private:
  struct Content {
    explicit Content(Message m) : message(std::move(m)), seal(SealOf(message)) {}
    const Message message;
    const Seal seal;
  };

  std::shared_ptr<const Content> content_;
};

}  // namespace stagewright
