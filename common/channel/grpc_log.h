// What gRPC itself has to say, which it would print on standard error in lines of its own.
#pragma once

namespace stagewright {

// Its lines become lines of this process's log: a failed handshake is a warning of it, in the
// log's format. Once, after SetUpLog.
void LogWhatGrpcSays();
// For a program whose errors are what its calls return: none of its lines are printed, unless the
// variable GRPC_VERBOSITY asks for them.
void SilenceGrpc();

}  // namespace stagewright
