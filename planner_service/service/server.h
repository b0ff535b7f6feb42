// The planning service as one object: state, pool, metrics and gRPC server. main.cc and tests run
// it.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/queue/queue_state.h"
#include "planner_service/service/door.h"
#include "planner_service/service/rpc.h"
#include "planner_service/store/sqlite_store.h"

namespace stagewright {

// Calls of one connection at the same time; more wait at the client.
inline constexpr int kMostStreams = 1024;
// Headers of a call: a signed token of 8 KiB (access/jwt.h), and what planners and proxies add.
inline constexpr int kMostMetadataBytes = 16 << 10;
// What the messages of all connections of a port may hold at once, in messages of the largest size:
// beyond it, connections are read more slowly and then closed.
inline constexpr size_t kMostMessages = 16;

struct ServerOptions {
  std::string listen = "127.0.0.1:7070";          // HOST:PORT; port 0 picks one.
  std::string worker_listen;                      // The same for workers; empty: they share it.
  std::string metrics_listen = "127.0.0.1:9070";  // Empty: no metrics.
  std::string state = "stagewright.db";           // SQLite file; ":memory:" keeps nothing.
  // Opens the state if it is in no file; `state` is then its name, as people know it.
  std::function<absl::StatusOr<OpenedStore>()> open_store;
  // Sees what calls are answered, at each address; may be empty.
  std::function<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>()> intercept;
  int planning_threads = 2;
  int planning_queue = 16;
  absl::Duration worker_timeout = absl::Seconds(10);
  int64_t keep_jobs = 0;     // Ended jobs that are kept, the newest; 0: all.
  double keep_days = 0;      // For how long ended jobs are kept; 0: for ever.
  QueueRules quotas;         // Devices that owners' jobs may hold at once.
  int max_message_mib = 64;  // Largest graph accepted.
  size_t owner_streams = OpenStreams::kMostOfOwner;  // Jobs that one owner may watch at once.
  std::shared_ptr<Door> opened_door;  // Instead of one that is opened as `door` says.
  DoorOptions door;                   // Who comes in; by default everybody, from this machine only.
};

// INVALID_ARGUMENT names an address that is none; errors of Door::CheckOptions. Looks at the
// options alone, and at nothing that they name.
absl::Status CheckOptions(const ServerOptions& options);

class PlannerServer {
 public:
  // Errors of CheckOptions and Door::Open; UNAVAILABLE if an address cannot be listened on,
  // FAILED_PRECONDITION if the state cannot be used.
  static absl::StatusOr<std::unique_ptr<PlannerServer>> Start(const ServerOptions& options);
  // Ends open streams, lets running calls finish for at most `grace`, then stops. Jobs on workers
  // go on.
  virtual void Shutdown(absl::Duration grace) = 0;
  virtual ~PlannerServer() = default;

  virtual std::string address() const = 0;          // HOST:PORT as bound.
  virtual std::string worker_address() const = 0;   // The same for workers; empty: they share it.
  virtual std::string metrics_address() const = 0;  // Empty without metrics.
  // How the state was found, a line each for the log: that it is new, what of it is damaged.
  virtual std::vector<std::string> notes() const = 0;
  virtual std::string security() const = 0;  // For people: what protects the address.
};

}  // namespace stagewright
