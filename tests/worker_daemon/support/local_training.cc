#include "tests/worker_daemon/support/local_training.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/checkpoint/shards.h"
#include "worker_daemon/executor/device_runner.h"
#include "worker_daemon/step/device_plan.h"
#include "worker_daemon/transport/routing/routing_transport.h"

namespace stagewright::testing {
namespace {

// A device of the job and what it reported.
struct Member {
  DeviceId device;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<DeviceRunner> runner;
  std::vector<StepReport> steps;
  std::vector<EvaluationReport> evaluations;
  absl::Status status;
};

bool Contains(const std::vector<int>& devices, int device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

// Each device a thread: transports may wait for each other. As in a worker, devices with
// accelerators of one group meet though they do not talk to each other.
absl::Status ConnectAll(const DeviceJob& spec, std::vector<std::unique_ptr<Member>>& members) {
  std::vector<absl::Status> connected(members.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] {
      DeviceJob own = spec;
      own.device = members[i]->device;
      std::vector<Transport::Peer> peers;
      const std::vector<int> talked_to = PeersOf(own), neighbours = NeighboursOf(own);
      const bool accelerated = RoutingTransport::HasAccelerator(members[i]->transport->Address());
      for (const auto& other : members) {
        const std::string address = other->transport->Address();
        const int peer = other->device.value();
        const bool meets = accelerated && RoutingTransport::HasAccelerator(address);
        if (other != members[i] && (meets || Contains(talked_to, peer)))
          peers.push_back({peer, address, Contains(neighbours, peer)});
      }
      const absl::Time deadline = absl::Now() + absl::Seconds(30);
      connected[i] = members[i]->transport->Connect(peers, deadline);
      if (connected[i].ok())
        connected[i] = members[i]->transport->OpenCollectives(CollectivesOf(own), deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : connected) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status Prepare(const DeviceJob& spec, const std::function<void(DeviceJob&)>& adjust,
                     const TransportFactory& create,
                     std::vector<std::unique_ptr<Member>>& members) {
  static std::atomic<uint64_t> generation = 0;
  const uint64_t this_generation = ++generation;
  for (const DeviceProgram& program : spec.program->devices) {
    auto member = std::make_unique<Member>();
    member->device = program.device;
    const TransportIdentity identity{"local-training", this_generation, program.device.value()};
    ASSIGN_OR_RETURN(member->transport, create(identity));
    DeviceJob own = spec;
    own.device = program.device;
    own.on_step = [m = member.get()](StepReport report) { m->steps.push_back(std::move(report)); };
    own.on_evaluation = [m = member.get()](const EvaluationReport& report) {
      m->evaluations.push_back(report);
    };
    if (adjust) adjust(own);
    ASSIGN_OR_RETURN(member->runner, DeviceRunner::Create(own, member->transport.get()));
    members.push_back(std::move(member));
  }
  return ConnectAll(spec, members);
}

// Runs all members; the first failure ends the others.
absl::Status RunAll(std::vector<std::unique_ptr<Member>>& members) {
  absl::Mutex mutex;
  absl::Status first;
  std::vector<std::thread> threads;
  for (const auto& member : members) {
    threads.emplace_back([&, m = member.get()] {
      absl::Status status = m->runner->Run();
      if (status.ok()) status = m->runner->Evaluate();
      if (status.ok()) return;
      {
        absl::MutexLock lock(&mutex);
        // A device that lost its peer may return before the peer that failed.
        if (first.ok() || (absl::IsUnavailable(first) && !absl::IsCancelled(status))) {
          first = status;
        }
      }
      for (const auto& other : members) {
        if (other.get() != m) other->runner->Abort(absl::CancelledError("another device failed"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return first;
}

void AddUp(const std::vector<std::unique_ptr<Member>>& members, TrainingResult& result) {
  const size_t steps = members[0]->steps.size();
  result.losses.assign(steps, 0);
  result.correct.assign(steps, 0);
  result.predicted.assign(steps, 0);
  result.evaluations.resize(members[0]->evaluations.size());
  for (const auto& member : members) {
    for (size_t i = 0; i < steps; ++i) {
      result.losses[i] += member->steps[i].loss;
      result.correct[i] += member->steps[i].correct;
      result.predicted[i] += member->steps[i].predicted;
      result.trace.insert(result.trace.end(), member->steps[i].events.begin(),
                          member->steps[i].events.end());
    }
    for (size_t i = 0; i < result.evaluations.size(); ++i) {
      result.evaluations[i].loss += member->evaluations[i].loss;
      result.evaluations[i].loss_samples += member->evaluations[i].loss_samples;
      result.evaluations[i].correct += member->evaluations[i].correct;
      result.evaluations[i].predicted += member->evaluations[i].predicted;
    }
    result.warnings.insert(result.warnings.end(), member->runner->warnings().begin(),
                           member->runner->warnings().end());
  }
}

}  // namespace

absl::Status RunLocally(const DeviceJob& spec, const std::function<void(DeviceJob&)>& adjust,
                        const TransportFactory& transports) {
  std::vector<std::unique_ptr<Member>> members;
  RETURN_IF_ERROR(Prepare(spec, adjust, transports, members));
  return RunAll(members);
}

absl::StatusOr<TrainingResult> TrainLocally(const DeviceJob& spec,
                                            const std::function<void(DeviceJob&)>& adjust,
                                            const TransportFactory& transports) {
  std::vector<std::unique_ptr<Member>> members;
  RETURN_IF_ERROR(Prepare(spec, adjust, transports, members));
  RETURN_IF_ERROR(RunAll(members));
  TrainingResult result;
  AddUp(members, result);
  static std::atomic<int> run = 0;
  const std::filesystem::path directory = TempPath(absl::StrCat("training-", ++run));
  std::filesystem::create_directory(directory);
  std::vector<std::string> shards;
  for (const auto& member : members) {
    ASSIGN_OR_RETURN(std::string path, member->runner->WriteShard(directory));
    if (!path.empty()) shards.push_back(std::move(path));
  }
  const std::string merged = directory / "model.safetensors";
  RETURN_IF_ERROR(MergeShards(*spec.graph, shards, spec.weights_path, merged));
  ASSIGN_OR_RETURN(result.parameters, ReadTensors(merged));
  std::filesystem::remove_all(directory);
  return result;
}

}  // namespace stagewright::testing
