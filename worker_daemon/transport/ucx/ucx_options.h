// Settings of the UCX transport; no header of UCX.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace stagewright {

struct UcxOptions {
  // UCX's transports, as for the environment variable UCX_TLS: "posix,self", "tcp". Empty: what
  // UCX_TLS says, and if it is not set, everything but those that fail in containers.
  std::string tls;
  // How long a progress thread with nothing to do polls before it sleeps. Waking it costs tens of
  // microseconds; polling takes a core.
  absl::Duration spin = absl::Microseconds(50);
  // UCX's keep-alive runs inside its progress call, so no sleep is longer.
  absl::Duration longest_sleep = absl::Milliseconds(500);
  // How long a thread that waits for a transfer does the work of the progress thread before it
  // sleeps: most waits of a step are shorter.
  absl::Duration patience = absl::Milliseconds(5);
  // What the transports of the generation prove to each other, 32 bytes; empty: nothing.
  std::string key = "";
};

}  // namespace stagewright
