#include "worker_daemon/daemon/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <exception>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/channel/metrics_server.h"
#include "worker_daemon/daemon/gpu_metrics.h"

namespace stagewright {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

Bytes TransferBytes(const Program& program, const Action& action) {
  const Channel& channel = program.channels[action.channel];
  const bool activation =
      action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kReceiveActivation;
  return action.samples.size() *
         (activation ? channel.activation_bytes_per_sample : channel.gradient_bytes_per_sample);
}

class ServedMetrics : public WorkerMetrics {
 public:
  explicit ServedMetrics(const std::string& listen) : exposer_(MetricsServerOptions(listen)) {
    exposer_.RegisterCollectable(registry_);
    auto nvml = Nvml::Open();
    if (nvml.ok()) {  // Otherwise there is no GPU of NVIDIA's to show.
      gpus_ = std::make_shared<GpuMetrics>(*std::move(nvml));
      exposer_.RegisterCollectable(gpus_);
    }
    address_ = MetricsAddress(listen, exposer_.GetListeningPorts().at(0));
  }

  void SetConnected(bool connected) override { connected_.Set(connected ? 1 : 0); }

  void ObserveStep(const std::string& job, const Program& program,
                   const StepReport& report) override {
    const prometheus::Labels labels = {{"job", job}};
    absl::MutexLock lock(&mutex_);
    jobs_.insert(job);
    steps_.Add(labels).Increment();
    step_seconds_
        .Add(labels,
             Histogram::BucketBoundaries{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100})
        .Observe(ToSeconds(report.end - report.start));
    for (const TraceEvent& event : report.events) {
      const ActionKind kind = event.action.kind;
      const std::string label(ActionKindName(kind));
      kinds_.insert(label);
      action_seconds_.Add({{"job", job}, {"kind", label}})
          .Increment(ToSeconds(event.end - event.start));
      if (IsSend(kind))
        sent_.Add(labels).Increment(static_cast<double>(TransferBytes(program, event.action)));
      if (IsReceive(kind))
        received_.Add(labels).Increment(static_cast<double>(TransferBytes(program, event.action)));
    }
  }

  void ObserveCheckpoint(const std::string& job, absl::Duration stall) override {
    absl::MutexLock lock(&mutex_);
    jobs_.insert(job);
    checkpoint_stall_seconds_
        .Add({{"job", job}},
             Histogram::BucketBoundaries{1e-5, 1e-4, 3e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 1})
        .Observe(absl::ToDoubleSeconds(stall));
  }

  void SetPeakMemory(const std::string& job, const std::string& device, Bytes bytes) override {
    absl::MutexLock lock(&mutex_);
    peak_.Add({{"device", device}}).Set(static_cast<double>(bytes));
    devices_[job].insert(device);
  }

  void SetMeasuredMemory(const std::string& job, const std::string& device,
                         const MemoryFigures& memory) override {
    absl::MutexLock lock(&mutex_);
    const prometheus::Labels labels = {{"device", device}};
    measured_.Add(labels).Set(static_cast<double>(memory.peak));
    in_use_.Add(labels).Set(static_cast<double>(memory.in_use));
    reserved_.Add(labels).Set(static_cast<double>(memory.reserved));
    devices_[job].insert(device);
  }

  void Forget(const std::string& job) override {
    absl::MutexLock lock(&mutex_);
    for (const std::string& device : std::exchange(devices_[job], {})) {
      for (Family<Gauge>* family : {&peak_, &measured_, &in_use_, &reserved_})
        family->Remove(&family->Add({{"device", device}}));
    }
    devices_.erase(job);
    if (jobs_.erase(job) == 0) return;
    const prometheus::Labels labels = {{"job", job}};
    steps_.Remove(&steps_.Add(labels));
    step_seconds_.Remove(&step_seconds_.Add(labels, Histogram::BucketBoundaries{1}));
    checkpoint_stall_seconds_.Remove(
        &checkpoint_stall_seconds_.Add(labels, Histogram::BucketBoundaries{1}));
    sent_.Remove(&sent_.Add(labels));
    received_.Remove(&received_.Add(labels));
    for (const std::string& kind : kinds_) {
      action_seconds_.Remove(&action_seconds_.Add({{"job", job}, {"kind", kind}}));
    }
  }

  std::string address() const override { return address_; }

 private:
  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  Gauge& connected_ = prometheus::BuildGauge()
                          .Name("stagewright_worker_connected")
                          .Help("1 while the worker is registered with the planner.")
                          .Register(*registry_)
                          .Add({});
  Family<Counter>& steps_ = prometheus::BuildCounter()
                                .Name("stagewright_worker_steps_total")
                                .Help("Training steps finished by a device of this worker.")
                                .Register(*registry_);
  Family<Histogram>& step_seconds_ = prometheus::BuildHistogram()
                                         .Name("stagewright_worker_step_seconds")
                                         .Help("Wall time of training steps.")
                                         .Register(*registry_);
  Family<Histogram>& checkpoint_stall_seconds_ =
      prometheus::BuildHistogram()
          .Name("stagewright_worker_checkpoint_stall_seconds")
          .Help("How long training waited for a checkpoint, by device and checkpoint.")
          .Register(*registry_);
  Family<Counter>& action_seconds_ =
      prometheus::BuildCounter()
          .Name("stagewright_worker_action_seconds_total")
          .Help("Time in actions of the program, by kind; transfers include waiting.")
          .Register(*registry_);
  Family<Counter>& sent_ = prometheus::BuildCounter()
                               .Name("stagewright_worker_bytes_sent_total")
                               .Help("Activations and gradients sent to other devices.")
                               .Register(*registry_);
  Family<Counter>& received_ = prometheus::BuildCounter()
                                   .Name("stagewright_worker_bytes_received_total")
                                   .Help("Activations and gradients received from other devices.")
                                   .Register(*registry_);
  Family<Gauge>& peak_ =
      prometheus::BuildGauge()
          .Name("stagewright_worker_memory_peak_bytes")
          .Help("Most memory a device's program holds at once, by its accounting.")
          .Register(*registry_);
  Family<Gauge>& measured_ =
      prometheus::BuildGauge()
          .Name("stagewright_worker_memory_measured_peak_bytes")
          .Help("Most memory the tensors of a device's job have taken at once so far.")
          .Register(*registry_);
  Family<Gauge>& in_use_ = prometheus::BuildGauge()
                               .Name("stagewright_worker_memory_in_use_bytes")
                               .Help("Memory of a device's tensors after its last step.")
                               .Register(*registry_);
  Family<Gauge>& reserved_ =
      prometheus::BuildGauge()
          .Name("stagewright_worker_memory_reserved_bytes")
          .Help("Memory that LibTorch's allocator has taken from a GPU, in use or not.")
          .Register(*registry_);
  std::shared_ptr<GpuMetrics> gpus_;  // Null without a driver. The exposer holds it weakly.
  prometheus::Exposer exposer_;
  std::string address_;
  absl::Mutex mutex_;
  std::set<std::string> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::set<std::string>> devices_ ABSL_GUARDED_BY(mutex_);  // With a peak.
  std::set<std::string> kinds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerMetrics>> WorkerMetrics::Serve(const std::string& listen) {
  try {  // The exposer's HTTP server reports a taken port by throwing.
    return std::make_unique<ServedMetrics>(listen);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", listen, ": ", error.what()));
  }
}

}  // namespace stagewright
