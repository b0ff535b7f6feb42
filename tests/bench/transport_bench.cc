// Measures the transports between two devices: bandwidth of large messages and the round trip of
// small ones. The UCX rows run in two processes, the local row in one. With --computing a thread at
// each end computes all the time, as a device's passes do while messages of other micro-batches
// move.
//
//   transport_bench [--megabytes 4] [--messages 1000] [--round-trips 20000] [--computing]
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "worker_daemon/transport/completion.h"
#include "worker_daemon/transport/local/local_transport.h"
#include "worker_daemon/transport/ucx/ucx_transport.h"

namespace stagewright {
namespace {

constexpr size_t kWindow = 8;  // Large messages under way at once.

struct Workload {
  size_t message_bytes = size_t{4} << 20;
  uint32_t messages = 1000;
  uint32_t round_trips = 20000;
  bool computing = false;
};

struct Figures {
  double bytes_per_second = 0;
  double chained_microseconds = 0;   // The next message is sent from `done`.
  double large_microseconds = 0;     // The same with large messages.
  double blocking_microseconds = 0;  // A thread waits for each message.
};

absl::Time Deadline() { return absl::Now() + absl::Minutes(1); }

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "transport_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

double MeasureBandwidth(Transport& transport, bool first, const Workload& workload) {
  const int peer = first ? 1 : 0;
  std::vector<std::vector<char>> buffers(kWindow, std::vector<char>(workload.message_bytes, 1));
  std::vector<Completion> window(kWindow);
  absl::Time start;
  for (uint32_t i = 0; i < workload.messages + kWindow; ++i) {
    if (i == kWindow) start = absl::Now();  // The first round faults the pages in.
    if (i >= kWindow) Check(window[i % kWindow].Wait(transport, Deadline()));
    window[i % kWindow] = Completion();
    std::vector<char>& buffer = buffers[i % kWindow];
    const Tag tag{0, Traffic::kActivation, i};
    if (first) {
      transport.Send(peer, tag, buffer.data(), buffer.size(), window[i % kWindow].Callback());
    } else {
      transport.Receive(peer, tag, buffer.data(), buffer.size(), window[i % kWindow].Callback());
    }
  }
  for (Completion& completion : window) Check(completion.Wait(transport, Deadline()));
  return workload.messages * static_cast<double>(workload.message_bytes) /
         absl::ToDoubleSeconds(absl::Now() - start);
}

double MeasureBlocking(Transport& transport, bool first, const Workload& workload) {
  const int peer = first ? 1 : 0;
  std::vector<char> buffer(1024);
  const absl::Time start = absl::Now();
  for (uint32_t i = 0; i < workload.round_trips; ++i) {
    const Tag tag{1, Traffic::kActivation, i};
    for (const bool send : {first, !first}) {
      Check(send ? SendAndWait(transport, peer, tag, buffer.data(), buffer.size(), Deadline())
                 : ReceiveAndWait(transport, peer, tag, buffer.data(), buffer.size(), Deadline()));
    }
  }
  return absl::ToDoubleMicroseconds(absl::Now() - start) / workload.round_trips;
}

// Keeps a core busy for as long as it lives, if it is to.
class Computing {
 public:
  explicit Computing(bool wanted) {
    if (!wanted) return;
    thread_ = std::thread([this] {
      volatile double value = 1;
      while (!stopping_.load(std::memory_order_relaxed)) value = value * 1.0000001;
    });
  }
  ~Computing() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

// Plays ping-pong from the callbacks, without a thread of its own.
class PingPong {
 public:
  PingPong(Transport& transport, bool first, uint32_t channel, size_t bytes, uint32_t rounds)
      : transport_(transport),
        first_(first),
        channel_(channel),
        rounds_(rounds),
        out_(bytes),
        in_(bytes) {}

  double Run() {
    const absl::Time start = absl::Now();
    Round();
    end_.WaitForNotification();
    return absl::ToDoubleMicroseconds(absl::Now() - start) / rounds_;
  }

 private:
  void Round() {
    if (round_ == rounds_) return end_.Notify();
    const Tag tag{channel_, Traffic::kActivation, round_++};
    transport_.Receive(first_ ? 1 : 0, tag, in_.data(), in_.size(), [this](absl::Status status) {
      Check(status);
      if (first_) {
        Round();
      } else {
        Answer(round_ - 1);
      }
    });
    if (first_) Answer(tag.sequence);
  }

  void Answer(uint32_t round) {
    transport_.Send(first_ ? 1 : 0, {channel_, Traffic::kActivation, round}, out_.data(),
                    out_.size(), [this](absl::Status status) {
                      Check(status);
                      if (!first_) Round();
                    });
  }

  Transport& transport_;
  const bool first_;
  const uint32_t channel_;
  const uint32_t rounds_;
  uint32_t round_ = 0;
  std::vector<char> out_;
  std::vector<char> in_;
  absl::Notification end_;
};

Figures Measure(Transport& transport, bool first, const Workload& workload) {
  Figures figures;
  const Computing computing(workload.computing);
  figures.bytes_per_second = MeasureBandwidth(transport, first, workload);
  figures.chained_microseconds = PingPong(transport, first, 2, 1024, workload.round_trips).Run();
  figures.large_microseconds =
      PingPong(transport, first, 3, workload.message_bytes, workload.messages).Run();
  figures.blocking_microseconds = MeasureBlocking(transport, first, workload);
  return figures;
}

std::string ReadMessage(int fd) {
  uint64_t size = 0;
  CHECK(recv(fd, &size, sizeof(size), MSG_WAITALL) == sizeof(size));
  std::string message(size, '\0');
  CHECK(recv(fd, message.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
  return message;
}

void WriteMessage(int fd, const std::string& message) {
  const uint64_t size = message.size();
  CHECK(send(fd, &size, sizeof(size), 0) == sizeof(size));
  CHECK(send(fd, message.data(), size, 0) == static_cast<ssize_t>(size));
}

Figures RunUcxSide(int device, int fd, const std::string& tls, const Workload& workload) {
  UcxOptions options;
  options.tls = tls;
  auto transport = UcxTransport::Create({"bench", 1, device}, options);
  Check(transport.status());
  WriteMessage(fd, (*transport)->Address());
  Check((*transport)->Connect({{1 - device, ReadMessage(fd)}}, Deadline()));
  return Measure(**transport, device == 0, workload);
}

// Forks before this process has a thread or has touched UCX.
Figures RunUcx(const std::string& tls, const Workload& workload) {
  int fds[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  pid_t children[2];
  int results[2];
  CHECK(pipe(results) == 0);
  for (int device = 0; device < 2; ++device) {
    children[device] = fork();
    CHECK(children[device] >= 0);
    if (children[device] != 0) continue;
    const Figures figures = RunUcxSide(device, fds[device], tls, workload);
    if (device == 0) CHECK(write(results[1], &figures, sizeof(figures)) == sizeof(figures));
    std::_Exit(0);
  }
  close(results[1]);
  Figures figures;
  const bool ok = read(results[0], &figures, sizeof(figures)) == sizeof(figures);
  close(results[0]);
  for (int i = 0; i < 2; ++i) {
    close(fds[i]);
    waitpid(children[i], nullptr, 0);
  }
  if (!ok) std::exit(1);
  return figures;
}

Figures RunLocal(const Workload& workload) {
  auto first = LocalTransport::Create({"bench", 1, 0});
  auto second = LocalTransport::Create({"bench", 1, 1});
  Check(first.status());
  Check(second.status());
  Check((*first)->Connect({{1, (*second)->Address()}}, Deadline()));
  Check((*second)->Connect({{0, (*first)->Address()}}, Deadline()));
  std::thread other([&] { Measure(**second, false, workload); });
  const Figures figures = Measure(**first, true, workload);
  other.join();
  return figures;
}

void PrintRow(const char* name, const Figures& figures) {
  std::printf("%-24s %14.2f %22.1f %22.1f %22.1f\n", name, figures.bytes_per_second / 1e9,
              figures.chained_microseconds, figures.blocking_microseconds,
              figures.large_microseconds);
  std::fflush(stdout);
}

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) {
  using namespace stagewright;
  CLI::App app("Bandwidth and round trip of the transports between two devices");
  Workload workload;
  size_t megabytes = 4;
  app.add_option("--megabytes", megabytes, "size of a large message (MiB)");
  app.add_option("--messages", workload.messages, "number of large messages");
  app.add_option("--round-trips", workload.round_trips, "number of 1 KiB round trips");
  app.add_flag("--computing", workload.computing, "a thread at each end computes meanwhile");
  CLI11_PARSE(app, argc, argv);
  workload.message_bytes = megabytes << 20;

  std::printf("%-24s %14s %22s %22s %22s\n", "transport", "GB/s", "1 KiB round trip (us)",
              "with blocking calls", "large round trip (us)");
  PrintRow("ucx, shared memory", RunUcx("posix,self", workload));
  PrintRow("ucx, our defaults", RunUcx("", workload));
  PrintRow("ucx, tcp", RunUcx("tcp,self", workload));
  PrintRow("local (one process)", RunLocal(workload));
  return 0;
}
