#include "planner_service/service/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <exception>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/wire/job_state.h"
#include "planner_service/jobs/job_proto.h"

namespace stagewright {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

template <typename Builder>
auto& Make(Builder builder, prometheus::Registry& registry, const char* name, const char* help) {
  return builder.Name(name).Help(help).Register(registry);
}

class ServedMetrics : public PlannerMetrics {
 public:
  explicit ServedMetrics(const std::string& listen) : exposer_(listen, 1) {
    exposer_.RegisterCollectable(registry_);
    const std::string host = listen.substr(0, listen.rfind(':'));
    address_ = absl::StrCat(host, ":", exposer_.GetListeningPorts().at(0));
  }

  void CountPlan(const std::string& planner, const std::string& result, double seconds) override {
    plans_.Add({{"planner", planner}, {"result", result}}).Increment();
    plan_seconds_.Observe(seconds);
  }

  void CountRequest(const std::string& method, const std::string& code) override {
    requests_.Add({{"method", method}, {"code", code}}).Increment();
  }

  void ObserveJob(const Job& job) override {
    absl::MutexLock lock(&mutex_);
    auto [it, added] = states_.try_emplace(job.name(), job.state);
    if (!added) jobs_.Add({{"state", JobStateName(ToProto(it->second))}}).Decrement();
    it->second = job.state;
    jobs_.Add({{"state", JobStateName(ToProto(job.state))}}).Increment();

    const prometheus::Labels labels = {{"job", job.name()}};
    ShowMemory(job);
    if (IsTerminal(job.state)) {
      step_seconds_.Remove(&step_seconds_.Add(labels));
      recent_seconds_.Remove(&recent_seconds_.Add(labels));
      predicted_seconds_.Remove(&predicted_seconds_.Add(labels));
      drift_.Remove(&drift_.Add(labels));
      loss_.Remove(&loss_.Add(labels));
    } else if (job.metrics.step > 0) {
      step_seconds_.Add(labels).Set(ToSeconds(job.metrics.step_time));
      recent_seconds_.Add(labels).Set(ToSeconds(job.metrics.recent_step_time));
      predicted_seconds_.Add(labels).Set(ToSeconds(job.metrics.predicted_step_time));
      drift_.Add(labels).Set(job.drift.has_value() ? job.drift->ratio : 0);
      loss_.Add(labels).Set(job.metrics.loss);
    }
  }

  void Sample(const PlanningPool& pool, const WorkerRegistry& registry) override {
    absl::MutexLock lock(&mutex_);
    queue_.Set(pool.queued());
    rejected_.Increment(static_cast<double>(pool.rejected()) - rejected_.Value());
    const auto devices = registry.Devices(/*free_only=*/false);
    int free = 0;
    for (const RegisteredDevice& device : devices) free += device.job.empty() ? 1 : 0;
    devices_.Add({{"state", "free"}}).Set(free);
    devices_.Add({{"state", "held"}}).Set(static_cast<double>(devices.size()) - free);
    workers_.Set(static_cast<double>(registry.List().size()));
  }

  void ShowStore(bool writable) override { store_writable_.Set(writable ? 1 : 0); }

  std::string address() const override { return address_; }

 private:
  void ShowMemory(const Job& job) {
    for (const DeviceMemory& memory : job.metrics.memory) {
      const prometheus::Labels labels = {{"job", job.name()}, {"device", memory.name}};
      if (IsTerminal(job.state)) {
        memory_.Remove(&memory_.Add(labels));
        predicted_memory_.Remove(&predicted_memory_.Add(labels));
      } else if (memory.measured_peak > 0) {
        memory_.Add(labels).Set(static_cast<double>(memory.measured_peak));
        predicted_memory_.Add(labels).Set(static_cast<double>(memory.predicted_peak));
      }
    }
  }

  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  Family<Counter>& plans_ =
      Make(prometheus::BuildCounter(), *registry_, "stagewright_planner_plans_total",
           "Planning requests, by planner and result.");
  Histogram& plan_seconds_ = Make(prometheus::BuildHistogram(), *registry_,
                                  "stagewright_planner_plan_seconds", "Time to plan.")
                                 .Add({}, Histogram::BucketBoundaries{0.001, 0.003, 0.01, 0.03, 0.1,
                                                                      0.3, 1, 3, 10, 30, 100});
  Gauge& queue_ =
      Make(prometheus::BuildGauge(), *registry_, "stagewright_planner_pool_queue_length",
           "Planning requests that wait for a thread.")
          .Add({});
  Counter& rejected_ =
      Make(prometheus::BuildCounter(), *registry_, "stagewright_planner_pool_rejected_total",
           "Planning requests refused because the queue was full.")
          .Add({});
  Family<Gauge>& jobs_ =
      Make(prometheus::BuildGauge(), *registry_, "stagewright_planner_jobs", "Jobs, by state.");
  Gauge& workers_ = Make(prometheus::BuildGauge(), *registry_, "stagewright_planner_workers",
                         "Connected workers.")
                        .Add({});
  Family<Gauge>& devices_ =
      Make(prometheus::BuildGauge(), *registry_, "stagewright_planner_devices",
           "Devices of connected workers, free or held by a job.");
  Family<Gauge>& step_seconds_ =
      Make(prometheus::BuildGauge(), *registry_, "stagewright_planner_job_step_seconds",
           "Latest step of a running job.");
  Family<Gauge>& predicted_seconds_ =
      Make(prometheus::BuildGauge(), *registry_, "stagewright_planner_job_predicted_step_seconds",
           "Step time that the plan of a running job predicts.");
  Family<Gauge>& recent_seconds_ =
      Make(prometheus::BuildGauge(), *registry_, "stagewright_planner_job_recent_step_seconds",
           "Median of the last steps of a running job, at most 64.");
  Family<Gauge>& drift_ =
      Make(prometheus::BuildGauge(), *registry_, "stagewright_planner_job_drift_ratio",
           "By how much steps of a running job lastingly take longer than predicted, over the "
           "prediction; 0 within a tenth.");
  Family<Gauge>& memory_ =
      Make(prometheus::BuildGauge(), *registry_, "stagewright_planner_job_memory_peak_bytes",
           "Most memory that the tensors of a running job took so far, by device.");
  Family<Gauge>& predicted_memory_ = Make(
      prometheus::BuildGauge(), *registry_, "stagewright_planner_job_predicted_memory_peak_bytes",
      "Peak memory that the plan of a running job predicts, by device.");
  Family<Gauge>& loss_ = Make(prometheus::BuildGauge(), *registry_, "stagewright_planner_job_loss",
                              "Latest loss of a running job.");
  Gauge& store_writable_ =
      Make(prometheus::BuildGauge(), *registry_, "stagewright_planner_store_writable",
           "1 if what happens to jobs can be stored; 0 while they wait for the store.")
          .Add({});
  Family<Counter>& requests_ =
      Make(prometheus::BuildCounter(), *registry_, "stagewright_planner_rpc_requests_total",
           "Finished calls, by method and status code.");
  prometheus::Exposer exposer_;
  std::string address_;
  absl::Mutex mutex_;
  std::map<std::string, JobState> states_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<PlannerMetrics>> PlannerMetrics::Serve(const std::string& listen) {
  try {  // The exposer's HTTP server reports a taken port by throwing.
    return std::make_unique<ServedMetrics>(listen);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", listen, ": ", error.what()));
  }
}

}  // namespace stagewright
