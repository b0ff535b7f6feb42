#include "worker_daemon/daemon/measuring/link_probe_run.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "worker_daemon/daemon/device_transport.h"
#include "worker_daemon/device/work_units.h"
#include "worker_daemon/links/link_probe.h"

namespace stagewright {
namespace {

// Shorter than the planner waits, so that it hears why.
constexpr absl::Duration kConnectDeadline = absl::Seconds(3);
constexpr absl::Duration kMeasureDeadline = absl::Seconds(5);

// The identity of the probe's transports; no job has this name.
constexpr char kJob[] = "links";

}  // namespace

LinkProbeRun::LinkProbeRun(v1::ProbeLinks message, std::vector<OfferedDevice> devices,
                           Reporter report, std::unique_ptr<LinkProbeRun> before)
    : message_(std::move(message)),
      devices_(std::move(devices)),
      report_(std::move(report)),
      before_(std::move(before)) {
  thread_ = std::thread([this] { Loop(); });
}

LinkProbeRun::~LinkProbeRun() {
  End();
  thread_.join();
}

void LinkProbeRun::End() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  Interrupt("the probe is over");
}

void LinkProbeRun::Connect(v1::ProbePeers peers) {
  absl::MutexLock lock(&mutex_);
  peers_ = std::move(peers);
}

void LinkProbeRun::Interrupt(const std::string& why) {
  absl::MutexLock lock(&mutex_);
  if (!interrupted_.ok()) return;
  interrupted_ = absl::AbortedError(why);
  for (const auto& transport : transports_) transport->Abort(interrupted_);
}

void LinkProbeRun::Report(v1::ConnectRequest message) {
  absl::MutexLock lock(&mutex_);
  if (!closing_) report_(std::move(message));
}

void LinkProbeRun::Loop() {
  before_.reset();
  const absl::Status prepared = Prepare();
  const absl::StatusOr<v1::LinksProbed> result = prepared.ok() ? Measure() : prepared;
  v1::ConnectRequest message;
  v1::LinksProbed& probed = *message.mutable_links_probed();
  if (result.ok()) probed = *result;
  probed.set_probe(probe());
  if (!result.ok()) {
    absl::MutexLock lock(&mutex_);
    probed.set_interrupted(!interrupted_.ok());
    probed.set_error(std::string((interrupted_.ok() ? result.status() : interrupted_).message()));
  }
  Report(std::move(message));
  // The object may live until the next probe. A transport takes its time to end, and who interrupts
  // a probe must not wait for that.
  decltype(transports_) ended;
  absl::MutexLock lock(&mutex_);
  ended.swap(transports_);
}

absl::Status LinkProbeRun::Prepare() {
  v1::ConnectRequest message;
  message.mutable_probe_ready()->set_probe(probe());
  for (int i = 0; i < message_.devices_size(); ++i) {
    const TransportIdentity identity{kJob, static_cast<uint64_t>(probe()),
                                     message_.devices(i).device()};
    ASSIGN_OR_RETURN(auto transport, MakeDeviceTransport(identity, devices_[static_cast<size_t>(i)],
                                                         message_.transport_key()));
    v1::ProbedDevice* device = message.mutable_probe_ready()->add_devices();
    device->set_device(identity.device);
    device->set_address(transport->Address());
    absl::MutexLock lock(&mutex_);
    if (!interrupted_.ok()) return interrupted_;
    transports_.push_back(std::move(transport));
  }
  Report(std::move(message));
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &LinkProbeRun::MayGoOn));
  return interrupted_;
}

absl::StatusOr<v1::LinksProbed> LinkProbeRun::Measure() {
  std::vector<Transport::Peer> addresses;
  {
    absl::MutexLock lock(&mutex_);
    for (const v1::ProbedDevice& device : peers_.devices())
      addresses.push_back({device.device(), device.address()});
  }
  const size_t own = devices_.size();
  std::vector<absl::StatusOr<v1::DeviceProbe>> results(own);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < own; ++i)
    threads.emplace_back([&, i] { results[i] = MeasureDevice(i, addresses); });
  for (std::thread& thread : threads) thread.join();
  v1::LinksProbed probed;
  for (auto& result : results) {
    RETURN_IF_ERROR(result.status());
    *probed.add_devices() = *std::move(result);
  }
  return probed;
}

absl::StatusOr<v1::DeviceProbe> LinkProbeRun::MeasureDevice(
    size_t index, const std::vector<Transport::Peer>& addresses) {
  RoutingTransport* transport = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    transport = transports_[index].get();
  }
  std::vector<Transport::Peer> others;
  std::vector<int> peers;
  for (const Transport::Peer& peer : addresses) {
    if (peer.device == transport->device()) continue;
    others.push_back(peer);
    peers.push_back(peer.device);
  }
  const OfferedDevice& device = devices_[index];
  RETURN_IF_ERROR(transport->Connect(others, SteadyNow() + kConnectDeadline));
  const absl::Time deadline = SteadyNow() + kMeasureDeadline;
  v1::DeviceProbe probe;
  probe.set_device(transport->device());
  if (message_.together()) {
    const WorkUnits work = {MakeProductUnit(device.torch_device),
                            MakeCopyUnit(device.torch_device)};
    ASSIGN_OR_RETURN(const CrowdTimes times, ProbeCrowd(*transport, peers, work, deadline));
    probe.set_product_ns(times.product.count());
    probe.set_copy_ns(times.copy.count());
    probe.set_core_share(times.core_share);
    probe.set_round_ns(times.round.count());
    probe.set_sent_bytes(times.sent.count());
    probe.set_send_ns(times.sending.count());
    probe.set_message_ns(times.message.count());
    probe.set_large_message_ns(times.large_message.count());
    probe.set_large_message_bytes(times.large_size.count());
    probe.set_reduction_ns(times.reduction.count());
    return probe;
  }
  if (peers.size() != 1) return absl::InvalidArgumentError("a link has two ends");
  ASSIGN_OR_RETURN(const auto times, ProbeLink(*transport, peers[0], deadline));
  for (const MessageTime& time : times) {
    v1::LinkSample* sample = probe.add_samples();
    sample->set_size_bytes(time.size.count());
    sample->set_time_ns(time.time.count());
  }
  return probe;
}

}  // namespace stagewright
