#include "worker_daemon/transport/local/local_hub.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {

std::shared_ptr<LocalHub> LocalHub::For(const std::string& job, uint64_t generation) {
  struct Registry {
    absl::Mutex mutex;
    std::map<std::pair<std::string, uint64_t>, std::weak_ptr<LocalHub>> hubs ABSL_GUARDED_BY(mutex);
  };
  static auto* registry = new Registry;  // Never destroyed: threads may outlive main.
  absl::MutexLock lock(&registry->mutex);
  std::erase_if(registry->hubs, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<LocalHub>& entry = registry->hubs[{job, generation}];
  std::shared_ptr<LocalHub> hub = entry.lock();
  if (hub == nullptr) {
    hub = std::make_shared<LocalHub>();
    entry = hub;
  }
  return hub;
}

LocalHub::MemberId LocalHub::Join(int device, ProgressThread* thread) {
  absl::MutexLock lock(&mutex_);
  const MemberId id = next_++;
  Member& member = members_[id];
  member.device = device;
  member.thread = thread;
  return id;
}

absl::Status LocalHub::Find(MemberId id, int device) const {
  absl::MutexLock lock(&mutex_);
  const auto member = members_.find(id);
  if (member == members_.end() || member->second.device != device) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device, " has no such transport in this process"));
  }
  return member->second.peer_failure;
}

void LocalHub::Post(MemberId self, MemberId peer, LocalOperation operation) {
  absl::MutexLock lock(&mutex_);
  Member& member = members_.at(self);
  ++member.outstanding;
  if (!member.own_failure.ok()) return Finish(self, std::move(operation), member.own_failure);
  const absl::Status& gone = members_.at(peer).peer_failure;
  if (!gone.ok()) return Finish(self, std::move(operation), gone);

  const Key key(operation.is_send ? self : peer, operation.is_send ? peer : self, operation.tag,
                operation.by_reference);
  const auto entry = waiting_.try_emplace(key).first;
  Waiting& waiting = entry->second;
  std::vector<LocalOperation>& counterparts = operation.is_send ? waiting.receives : waiting.sends;
  if (counterparts.empty()) {
    (operation.is_send ? waiting.sends : waiting.receives).push_back(std::move(operation));
    return;
  }
  LocalOperation counterpart = std::move(counterparts.front());
  counterparts.erase(counterparts.begin());
  if (counterparts.empty()) waiting_.erase(entry);
  if (operation.is_send) {
    Transfer(key, std::move(operation), std::move(counterpart));
  } else {
    Transfer(key, std::move(counterpart), std::move(operation));
  }
}

void LocalHub::Fail(MemberId self, LocalOperation operation, absl::Status status) {
  absl::MutexLock lock(&mutex_);
  Member& member = members_.at(self);
  ++member.outstanding;
  Finish(self, std::move(operation),
         member.own_failure.ok() ? std::move(status) : member.own_failure);
}

void LocalHub::Leave(MemberId self, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  Member& member = members_.at(self);
  if (!member.own_failure.ok()) return;
  member.own_failure = status;
  member.peer_failure = absl::UnavailableError(
      absl::StrCat("device ", member.device, " has gone: ", status.message()));
  for (auto entry = waiting_.begin(); entry != waiting_.end();) {
    const auto& [sender, receiver, tag, by_reference] = entry->first;
    if (sender != self && receiver != self) {
      ++entry;
      continue;
    }
    for (LocalOperation& send : entry->second.sends) {
      Finish(sender, std::move(send), sender == self ? status : member.peer_failure);
    }
    for (LocalOperation& receive : entry->second.receives) {
      Finish(receiver, std::move(receive), receiver == self ? status : member.peer_failure);
    }
    entry = waiting_.erase(entry);
  }
}

void LocalHub::AwaitIdle(MemberId self) {
  absl::MutexLock lock(&mutex_);
  const Member& member = members_.at(self);
  mutex_.Await(absl::Condition(
      +[](const Member* m) { return m->outstanding == 0; }, &member));
}

void LocalHub::EndOne(MemberId self) {
  absl::MutexLock lock(&mutex_);
  --members_.at(self).outstanding;
}

void LocalHub::Finish(MemberId self, LocalOperation operation, absl::Status status) {
  members_.at(self).thread->Run([this, self, done = std::move(operation.done),
                                 received = std::move(operation.received),
                                 status = std::move(status)] {
    if (received != nullptr) {
      received(status);
    } else {
      done(status);
    }
    EndOne(self);
  });
}

// Both transports stay until their operations are done (AwaitIdle), and so do their threads.
void LocalHub::Transfer(const Key& key, LocalOperation send, LocalOperation receive) {
  const MemberId sender = std::get<0>(key);
  const MemberId receiver = std::get<1>(key);
  const int from = members_.at(sender).device;
  const int to = members_.at(receiver).device;
  members_.at(receiver).thread->Run(
      [this, key, from, to, send = std::move(send), receive = std::move(receive)]() mutable {
        absl::Status status;
        if (send.bytes != receive.bytes) {
          status = SizeMismatch(from, to, send.tag, send.bytes, receive.bytes);
        } else if (send.bytes > 0) {
          std::memcpy(receive.target, send.source, send.bytes);
        }
        if (receive.received != nullptr) {
          // Both ends here: there is no copy whose end the sender's thread could do beside the
          // next.
          receive.received(std::move(send.object));
          EndOne(std::get<1>(key));
          send.done(status);
          EndOne(std::get<0>(key));
          return;
        }
        {
          absl::MutexLock lock(&mutex_);
          Finish(std::get<0>(key), std::move(send), status);
        }
        receive.done(status);
        EndOne(std::get<1>(key));
      });
}

}  // namespace stagewright
