#include "planner_service/links/link_prober.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner_service/links/link_fit.h"
#include "planner_service/registry/transport_key.h"

namespace stagewright {
namespace {

// A worker that gave up its probe for a job is likely to have more of them.
constexpr absl::Duration kPause = absl::Seconds(2);
// Below this part of what the cores allow, other programs disturbed a crowd. What they disturb is
// worth another try when they may have ended; a machine that is never quiet is measured as it is.
constexpr double kLeastShare = 0.9;
constexpr absl::Duration kUntilQuiet = absl::Seconds(1);
constexpr int kMostRetries = 5;
// No figure of a probe that ends within its deadline is longer.
constexpr Nanos kLongestProbe = 60 * kSecond;

std::set<std::string> WorkersOf(const Probe& probe) {
  std::set<std::string> workers;
  for (const Probe::Participant& participant : probe.participants)
    workers.insert(participant.worker);
  return workers;
}

LinkFigure FigureOf(const absl::Status& status, const v1::DeviceProbe& probe, absl::Time now) {
  LinkFigure figure;
  std::vector<LinkSample> samples;
  for (const v1::LinkSample& sample : probe.samples())
    samples.push_back({Bytes(sample.size_bytes()), Nanos(sample.time_ns())});
  const absl::StatusOr<LinkRates> rates = status.ok() ? FitLink(samples) : status;
  if (!rates.ok()) {
    figure.failure = std::string(rates.status().message());
    return figure;
  }
  return {rates->latency, rates->bytes_per_second, now, ""};
}

absl::Status CheckCrowd(const v1::DeviceProbe& probe, bool alone) {
  const auto is_time = [](int64_t ns) { return ns > 0 && Nanos(ns) <= kLongestProbe; };
  const bool works = is_time(probe.product_ns()) && is_time(probe.copy_ns());
  const auto is_cost = [&](int64_t ns) { return ns == 0 || is_time(ns); };
  const bool talks = is_time(probe.round_ns()) && probe.sent_bytes() > 0 &&
                     is_time(probe.send_ns()) && is_cost(probe.message_ns()) &&
                     is_cost(probe.large_message_ns()) && is_cost(probe.reduction_ns());
  if (works && (alone || talks)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the probe measured ", probe.product_ns(), ", ", probe.copy_ns(), ", ",
                   probe.round_ns(), " and ", probe.send_ns(),
                   " ns for products, copies, rounds and ", probe.sent_bytes(), " bytes sent"));
}

// The part of its time that a thread has a core, if no other program wants one.
double ExpectedShare(const Crowd& crowd, const std::vector<RegisteredDevice>& devices) {
  const double threads = static_cast<double>(crowd.devices) * crowd.threads_per_device;
  for (const RegisteredDevice& device : devices) {
    if (device.host_address == crowd.host_address && device.host_cores > 0)
      return std::min(1.0, device.host_cores / threads);
  }
  return 1;
}

// Other programs had the cores for a good part of the time.
bool Disturbed(const std::vector<v1::DeviceProbe>& probes, double expected_share) {
  double share = 0;
  for (const v1::DeviceProbe& probe : probes) share += probe.core_share();
  return share < kLeastShare * expected_share * static_cast<double>(probes.size());
}

// What a byte of a message costs each end, ns.
double PerByte(const v1::DeviceProbe& probe) {
  if (probe.large_message_bytes() <= 0) return 0;
  return static_cast<double>(probe.large_message_ns() - probe.message_ns()) /
         static_cast<double>(probe.large_message_bytes());
}

// Means over devices that do the same at the same time.
absl::StatusOr<CrowdFigure> CrowdFigureOf(const std::vector<v1::DeviceProbe>& probes,
                                          double expected_share, absl::Time now) {
  CrowdFigure figure;
  figure.measured = now;
  double per_byte = 0;  // ns.
  const auto n = static_cast<int64_t>(probes.size());
  for (const v1::DeviceProbe& probe : probes) {
    RETURN_IF_ERROR(CheckCrowd(probe, n == 1));
    figure.product += Nanos(probe.product_ns() / n);
    figure.copy += Nanos(probe.copy_ns() / n);
    if (n == 1) continue;
    const auto product =
        static_cast<int64_t>(static_cast<double>(probe.product_ns()) / expected_share);
    figure.latency += Nanos(std::max<int64_t>(0, probe.round_ns() - product) / n);
    figure.bytes_per_second +=
        static_cast<double>(probe.sent_bytes()) * 1e9 / static_cast<double>(probe.send_ns());
    figure.message += Nanos(probe.message_ns() / n);
    figure.reduction += Nanos(probe.reduction_ns() / n);
    per_byte += PerByte(probe) / static_cast<double>(n);
  }
  if (per_byte > 0) figure.message_bytes_per_second = 1e9 / per_byte;
  return figure;
}

}  // namespace

absl::Status LinkProber::Recover() {
  const auto stored = store_->Read(LinkKeeper::kKey);
  if (absl::IsNotFound(stored.status())) return absl::OkStatus();
  RETURN_IF_ERROR(stored.status());
  v1::MeasuredLinks measured;
  if (!measured.ParseFromString(*stored))
    return absl::DataLossError(absl::StrCat("store: entry ", LinkKeeper::kKey, " is damaged"));
  registry_->SetLinks(FromProto(measured));
  return absl::OkStatus();
}

void LinkProber::OnRegistered(const v1::Register& worker, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  LinkTable table = registry_->Links();
  Meet(worker, table);
  std::set<std::string> workers = {worker.worker()}, hosts = {worker.host_address()};
  for (const RegisteredDevice& device : registry_->Devices(/*free_only=*/false)) {
    workers.insert(device.worker);
    hosts.insert(device.host_address);
  }
  Bound(workers, hosts, table);
  registry_->SetLinks(std::move(table));
  retries_.erase(worker.host_address());
  Advance(now);
}

void LinkProber::OnLost(const std::string& worker, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (!running_.has_value() || !WorkersOf(running_->probe).contains(worker)) return;
  End(absl::AbortedError(absl::StrCat("worker ", worker, " was lost")), now);
}

bool LinkProber::Awaits(const std::string& worker, int64_t probe) const {
  return running_.has_value() && running_->number == probe && running_->awaited.contains(worker);
}

// Whether the probe's participant of that index is a device of the worker.
bool LinkProber::Takes(const std::string& worker, int32_t index) const {
  const std::vector<Probe::Participant>& all = running_->probe.participants;
  return index >= 0 && static_cast<size_t>(index) < all.size() && all[index].worker == worker;
}

void LinkProber::OnReady(const std::string& worker, const v1::ProbeReady& message, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (!Awaits(worker, message.probe()) || !running_->results.empty()) return;
  for (const auto& device : message.devices()) {
    if (Takes(worker, device.device())) *running_->peers.add_devices() = device;
  }
  running_->awaited.erase(worker);
  if (!running_->awaited.empty()) return;
  running_->awaited = WorkersOf(running_->probe);
  running_->results.resize(running_->probe.participants.size());
  v1::ConnectResponse peers;
  *peers.mutable_probe_peers() = running_->peers;
  for (const std::string& other : running_->awaited) registry_->Send(other, peers);
}

void LinkProber::OnProbed(const std::string& worker, const v1::LinksProbed& message,
                          absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (!Awaits(worker, message.probe())) return;
  if (message.interrupted()) return End(absl::AbortedError(message.error()), now);
  if (!message.error().empty() || running_->results.empty()) {
    return End(absl::UnavailableError(absl::StrCat("worker ", worker, ": ", message.error())), now);
  }
  for (const v1::DeviceProbe& device : message.devices()) {
    if (Takes(worker, device.device())) running_->results[device.device()] = device;
  }
  running_->awaited.erase(worker);
  if (running_->awaited.empty()) End(absl::OkStatus(), now);
}

void LinkProber::Tick(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (running_.has_value() && now >= running_->deadline) {
    return End(absl::DeadlineExceededError(
                   absl::StrCat("no answer in ", absl::FormatDuration(kPatience), " from worker ",
                                absl::StrJoin(running_->awaited, ", "))),
               now);
  }
  if (running_.has_value() && !MayRun(running_->probe, registry_->Devices(/*free_only=*/false))) {
    return End(absl::AbortedError("the machine has other work"), now);
  }
  Advance(now);
}

void LinkProber::MeasureAgain(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  for (const Probe& probe : ProbesToDo(registry_->Devices(/*free_only=*/false), {}, {}))
    again_.insert(probe.Name());
  retries_.clear();
  Advance(now);
}

bool LinkProber::busy() const {
  absl::MutexLock lock(&mutex_);
  if (running_.has_value()) return true;
  const std::vector<RegisteredDevice> devices = registry_->Devices(/*free_only=*/false);
  const std::vector<Probe> probes = ProbesToDo(devices, registry_->Links(), again_);
  return std::any_of(probes.begin(), probes.end(),
                     [&](const Probe& probe) { return MayRun(probe, devices); });
}

LinkProber::Figures LinkProber::figures() const {
  absl::MutexLock lock(&mutex_);
  LinkTable table = registry_->Links();
  const auto left = ProbesToDo(registry_->Devices(/*free_only=*/false), table, again_).size();
  return {std::move(table), static_cast<int32_t>(left)};
}

void LinkProber::Advance(absl::Time now) {
  if (running_.has_value() || now < not_before_) return;
  const std::vector<RegisteredDevice> devices = registry_->Devices(/*free_only=*/false);
  for (const Probe& probe : ProbesToDo(devices, registry_->Links(), again_)) {
    if (MayRun(probe, devices)) return Begin(probe, now);
  }
}

void LinkProber::Begin(const Probe& probe, absl::Time now) {
  running_ = Running{probe, next_++, now + kPatience, WorkersOf(probe), {}, {}};
  running_->peers.set_probe(running_->number);
  std::vector<std::string> names;
  for (const Probe::Participant& participant : probe.participants)
    names.push_back(participant.worker + "/" + participant.device);
  const std::string key = NewTransportKey(registry_->Devices(/*free_only=*/false), names);
  std::map<std::string, v1::ConnectResponse> messages;
  for (size_t i = 0; i < probe.participants.size(); ++i) {
    v1::ProbeLinks* message = messages[probe.participants[i].worker].mutable_probe_links();
    message->set_probe(running_->number);
    message->set_together(probe.together());
    message->set_transport_key(key);
    v1::ProbedDevice* device = message->add_devices();
    device->set_device(static_cast<int32_t>(i));
    device->set_name(probe.participants[i].device);
  }
  for (const auto& [worker, message] : messages) registry_->Send(worker, message);
}

void LinkProber::End(const absl::Status& status, absl::Time now) {
  v1::ConnectResponse end;
  end.mutable_end_probe()->set_probe(running_->number);
  for (const std::string& worker : WorkersOf(running_->probe)) registry_->Send(worker, end);
  if (absl::IsAborted(status)) {
    not_before_ = now + kPause;
  } else {
    LinkTable table = registry_->Links();
    const std::string name = running_->probe.Name();
    again_.erase(name);
    if (running_->probe.together()) {
      NoteCrowd(status, now, table);
    } else {
      NotePair(status, now, table);
    }
    keeper_.Keep(table);
    registry_->SetLinks(std::move(table));
  }
  running_.reset();
  Advance(now);
}

void LinkProber::NotePair(const absl::Status& status, absl::Time now, LinkTable& table) {
  running_->results.resize(2);
  for (size_t from = 0; from < 2; ++from) {
    const std::string& sender = running_->probe.participants[from].worker;
    const std::string& receiver = running_->probe.participants[1 - from].worker;
    LinkFigure figure = FigureOf(status, running_->results[from], now);
    LinkFigure& known = table.links[{sender, receiver}];
    const bool measured_before = known.ok() && known.bytes_per_second > 0;
    if (!figure.ok() && measured_before) continue;
    // Both answered: other programs had the cores, so that a large message took no longer.
    if (!figure.ok() && status.ok()) TryAgain(HostOf(sender), now);
    known = std::move(figure);
  }
}

void LinkProber::NoteCrowd(const absl::Status& status, absl::Time now, LinkTable& table) {
  const double share =
      ExpectedShare(running_->probe.crowd, registry_->Devices(/*free_only=*/false));
  const absl::StatusOr<CrowdFigure> figure =
      status.ok() ? CrowdFigureOf(running_->results, share, now) : status;
  CrowdFigure& known = table.crowds[running_->probe.crowd];
  if (figure.ok()) {
    const bool disturbed = Disturbed(running_->results, share);
    if (!disturbed || known.product == 0) known = *figure;
    if (disturbed) {
      TryAgain(running_->probe.crowd.host_address, now);
    } else {
      retries_.erase(running_->probe.crowd.host_address);
    }
  } else if (known.product == 0) {
    known.failure = std::string(figure.status().message());
  }
}

void LinkProber::TryAgain(const std::string& host, absl::Time now) {
  int& retries = retries_[host];
  if (retries == kMostRetries) return;
  ++retries;
  again_.insert(running_->probe.Name());
  not_before_ = now + kUntilQuiet;
}

std::string LinkProber::HostOf(const std::string& worker) const {
  for (const RegisteredDevice& device : registry_->Devices(/*free_only=*/false)) {
    if (device.worker == worker) return device.host_address;
  }
  return "";
}

}  // namespace stagewright
