#include "common/channel/grpc_log.h"

#include <grpc/support/log.h>

#include <cstdlib>

#include "common/log/log.h"

namespace stagewright {
namespace {

// What gRPC calls an error is one of a connection, as of a stranger's; the program goes on.
LogLevel LevelOf(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_ERROR:
      return LogLevel::kWarning;
    case GPR_LOG_SEVERITY_INFO:
      return LogLevel::kInfo;
    default:
      return LogLevel::kDebug;
  }
}

}  // namespace

void LogWhatGrpcSays() {
  gpr_set_log_function(
      [](gpr_log_func_args* line) { Log(LevelOf(line->severity), line->message); });
}

void SilenceGrpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace stagewright
