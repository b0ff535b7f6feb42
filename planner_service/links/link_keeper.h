// Measured links for those who must not wait for the store: a thread of its own writes them.
#pragma once

#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "planner_service/registry/link_table.h"
#include "planner_service/store/store.h"

namespace stagewright {

// Thread-safe.
class LinkKeeper {
 public:
  static constexpr char kKey[] = "links";

  // The store outlives it. At its end the table that waits is waited for so long.
  explicit LinkKeeper(Store* store, absl::Duration patience = absl::Seconds(3));
  // Drops what has not been written by then. A write that has begun is waited for as long as the
  // store lets it take.
  ~LinkKeeper();
  LinkKeeper(const LinkKeeper&) = delete;
  LinkKeeper& operator=(const LinkKeeper&) = delete;

  // Writes the table, unless a newer one comes before the store takes it. What the store loses is
  // measured again after a restart.
  void Keep(LinkTable table);

 private:
  void Run();

  Store* const store_;
  const absl::Duration patience_;
  absl::Mutex mutex_;
  std::optional<LinkTable> newest_ ABSL_GUARDED_BY(mutex_);  // Waits for the store.
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace stagewright
