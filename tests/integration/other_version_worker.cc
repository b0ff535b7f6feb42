// other_version_worker PLANNER NAME VERSION: registers as a worker of that version, prints
// "registered", and stays until its standard input ends. Exits with 1 and the planner's message if
// it is refused.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <cstdio>
#include <thread>

#include "stagewright/v1/worker_service.grpc.pb.h"

int main(int argc, char** argv) {
  namespace v1 = stagewright::v1;
  if (argc != 4) return 2;
  const auto stub =
      v1::WorkerService::NewStub(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
  v1::ConnectRequest request;
  v1::Register* worker = request.mutable_register_();
  worker->set_worker(argv[2]);
  worker->set_version(argv[3]);
  v1::DeviceKind* kind = worker->add_kinds();
  kind->set_name("cpu");
  kind->set_flops_per_second(1);
  kind->set_memory_bytes_per_second(1);
  worker->add_devices()->set_name("cpu0");
  worker->mutable_devices(0)->set_memory_bytes(1);
  grpc::ClientContext context;
  const auto stream = stub->Connect(&context);
  v1::ConnectResponse answer;
  if (!stream->Write(request) || !stream->Read(&answer)) {
    std::fprintf(stderr, "%s\n", stream->Finish().error_message().c_str());
    return 1;
  }
  std::puts("registered");
  std::fflush(stdout);
  std::thread reader([&] {
    while (stream->Read(&answer)) {
    }
  });
  while (std::getchar() != EOF) {  // A heartbeat for every line.
    v1::ConnectRequest heartbeat;
    heartbeat.mutable_heartbeat();
    stream->Write(heartbeat);
  }
  stream->WritesDone();
  reader.join();
  return 0;
}
