// Small things every service here needs: statuses, streams that end with the server, and servers
// that do not say what they offer.
#pragma once

#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"

namespace stagewright {

// The codes of absl and gRPC agree; details (common/base/error_details.h) go along as those of
// google.rpc: ErrorInfo, BadRequest, ResourceInfo, RetryInfo. UNAVAILABLE always has RetryInfo: by
// that clients tell a planner that answers so from one that gRPC does not reach.
grpc::Status ToGrpc(const absl::Status& status);

// What a call is told whose message does not fit beside those that are held
// (intake/message_budget.h): RESOURCE_EXHAUSTED, with when to try again.
absl::Status NoRoomForMessage();

// Moves what `from` has into `*to`; where it has nothing, says why.
template <typename T>
absl::Status MoveTo(absl::StatusOr<T> from, T* to) {
  if (!from.ok()) return std::move(from).status();
  *to = *std::move(from);
  return absl::OkStatus();
}

// For ServerBuilder::SetOption. A program that has gRPC's reflection has it in all of its servers,
// also where callers need no role, and where others than theirs answer.
std::unique_ptr<grpc::ServerBuilderOption> WithoutReflection();

// Has a server answer compressed messages with UNIMPLEMENTED: what comes of them may take a
// thousand times the bytes that a caller sends, and no client of ours compresses.
void RefuseCompression(grpc::ServerBuilder& builder);

// Streams that would outlive Server::Shutdown(), which waits for every reactor. Thread-safe.
class OpenStreams {
 public:
  // Workers' streams and those of watchers; an owner's are fewer, so that nobody takes them all,
  // and a user with thousands of watchers is served.
  static constexpr size_t kMost = 4096, kMostOfOwner = kMost / 4 * 3;
  // The owner of workers' streams, which watches leave room for.
  static constexpr char kWorkers[] = "workers";

  explicit OpenStreams(size_t most_of_owner = kMostOfOwner, size_t most = kMost)
      : most_of_owner_(most_of_owner), most_(most) {}

  // `close` finishes the stream with a status; it may be called once, from any thread. Called at
  // once if the server is shutting down. Streams of an owner are counted together.
  int64_t Add(std::function<void()> close, const std::string& owner = "");
  void Remove(int64_t id);
  // RESOURCE_EXHAUSTED, with when to try again, if there are more than the most, of all or of
  // `owner`.
  absl::Status CheckRoom(const std::string& owner);
  // The same if workers alone have more than the most of all.
  absl::Status CheckRoomForWorker();
  // Closes all streams, and those that come later.
  void CloseAll();

 private:
  struct Stream {
    std::function<void()> close;
    std::string owner;
  };

  size_t CountOf(absl::string_view owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t most_of_owner_, most_;
  absl::Mutex mutex_;
  std::map<int64_t, Stream> streams_ ABSL_GUARDED_BY(mutex_);
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagewright
