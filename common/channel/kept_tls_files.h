// Files of TLS as they were when they were good last: whatever becomes of them while a program
// runs, it goes on with those.
#pragma once

#include "absl/strings/string_view.h"
#include "common/channel/tls_files.h"

namespace stagewright {

// Paths at which a copy stays, for as long as the process lives, that never is in between: files
// are looked at every kTlsRefresh, and taken all together once CheckTlsFiles has nothing to say
// against them. What it says else is in the log, once. Files that are not good now are themselves
// the answer unless they were so before. `flags` as in CheckTlsFiles. Thread-safe.
TlsFiles KeptTlsFiles(const TlsFiles& files, absl::string_view flags = "--tls");

}  // namespace stagewright
