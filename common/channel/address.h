// HOST:PORT.
#pragma once

#include <string>

#include "common/base/status.h"

namespace stagewright {

// INVALID_ARGUMENT, naming `flag`, unless the port is one from 0 to 65535: gRPC would take it
// modulo 2^16.
absl::Status CheckAddress(absl::string_view flag, absl::string_view address);

// The same of a planner's, which is called: port 0 is nobody's. Names of gRPC's own kinds, such as
// "ipv4:HOST:PORT,HOST:PORT", "dns:///NAME" and "unix:PATH", are gRPC's to judge.
absl::Status CheckTarget(absl::string_view flag, absl::string_view address);

// Whether what is sent there stays on this machine: localhost, 127.0.0.0/8, [::1], a socket of the
// file system; of gRPC's lists "ipv4:HOST:PORT,HOST:PORT", all that they name. Names are not looked
// up: any other name may be anywhere.
bool IsLoopback(absl::string_view address);

// Whether it stands for all addresses of a machine, to listen on, as 0.0.0.0 and [::] do: nobody on
// another machine can call it.
bool IsWildcard(absl::string_view address);

}  // namespace stagewright
