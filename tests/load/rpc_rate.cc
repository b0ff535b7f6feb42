// How many calls a second a gRPC server answers, and a server that answers at once, to compare
// with.
//   rpc_rate echo ANSWER               answers every call with the contents of a file; prints its
//   address rpc_rate measure ADDRESS METHOD REQUEST CALLS CALLERS [SAVE]
//                                      calls a second with so many callers, each with one call
//                                      under way
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

grpc::ByteBuffer ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "rpc_rate: cannot read %s\n", path.c_str());
    std::exit(2);
  }
  std::ostringstream bytes;
  bytes << in.rdbuf();
  const grpc::Slice slice(bytes.str());
  return grpc::ByteBuffer(&slice, 1);
}

void WriteFile(const grpc::ByteBuffer& bytes, const std::string& path) {
  std::vector<grpc::Slice> slices;
  bytes.Dump(&slices);
  std::ofstream out(path, std::ios::binary);
  for (const grpc::Slice& slice : slices)
    out.write(reinterpret_cast<const char*>(slice.begin()), static_cast<long>(slice.size()));
}

class Echo : public grpc::CallbackGenericService {
 public:
  explicit Echo(const grpc::ByteBuffer& answer) : answer_(answer) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    class Call : public grpc::ServerGenericBidiReactor {
     public:
      explicit Call(const grpc::ByteBuffer* answer) : answer_(answer) { StartRead(&question_); }
      void OnReadDone(bool ok) override {
        if (ok) {
          StartWriteAndFinish(answer_, {}, grpc::Status::OK);
        } else {
          Finish(grpc::Status::CANCELLED);
        }
      }
      void OnDone() override { delete this; }

     private:
      const grpc::ByteBuffer* const answer_;
      grpc::ByteBuffer question_;
    };
    return new Call(&answer_);
  }

 private:
  const grpc::ByteBuffer answer_;
};

int RunEcho(const std::string& answer) {
  Echo echo(ReadFile(answer));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&echo);
  const auto server = builder.BuildAndStart();
  std::printf("127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}

// One call; its answer.
grpc::ByteBuffer CallOnce(grpc::GenericStub& stub, const std::string& method,
                          const grpc::ByteBuffer& request) {
  grpc::ClientContext context;
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, method, {}, &request, &response,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  if (!status.ok()) {
    std::fprintf(stderr, "rpc_rate: %s\n", status.error_message().c_str());
    std::exit(1);
  }
  return response;
}

int Measure(const std::vector<std::string>& args) {
  const std::string& method = args[1];
  const grpc::ByteBuffer request = ReadFile(args[2]);
  const int calls = std::atoi(args[3].c_str()), callers = std::atoi(args[4].c_str());
  grpc::ChannelArguments unbounded;
  unbounded.SetMaxReceiveMessageSize(-1);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(args[0], grpc::InsecureChannelCredentials(), unbounded));
  const grpc::ByteBuffer first = CallOnce(stub, method, request);
  if (args.size() > 5) WriteFile(first, args[5]);
  std::atomic<int> left = calls;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&] {
      while (left-- > 0) CallOnce(stub, method, request);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%.1f\n", calls / seconds.count());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 2 && args[0] == "echo") return RunEcho(args[1]);
  if (args.size() >= 6 && args[0] == "measure") return Measure({args.begin() + 1, args.end()});
  std::fprintf(
      stderr,
      "usage: rpc_rate echo ANSWER | measure ADDRESS METHOD REQUEST CALLS CALLERS [SAVE]\n");
  return 2;
}
