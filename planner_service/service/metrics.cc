#include "planner_service/service/metrics.h"

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
#include "absl/time/clock.h"
#include "common/base/process_stats.h"
#include "common/channel/metrics_server.h"
#include "planner_service/service/job_metrics.h"

#ifndef STAGEWRIGHT_VERSION
#error "STAGEWRIGHT_VERSION comes from the build"
#endif

namespace stagewright {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;

template <typename Builder>
auto& Make(Builder builder, prometheus::Registry& registry, const char* name, const char* help) {
  return builder.Name(name).Help(help).Register(registry);
}

// Has the counter, which an owner counts by itself, show its figure.
void CatchUp(Counter& counter, double value) {
  if (value > counter.Value()) counter.Increment(value - counter.Value());
}

class ServedMetrics : public PlannerMetrics {
 public:
  explicit ServedMetrics(const std::string& listen)
      : jobs_(*registry_), exposer_(MetricsServerOptions(listen)) {
    exposer_.RegisterCollectable(registry_);
    address_ = MetricsAddress(listen, exposer_.GetListeningPorts().at(0));
    Make(BuildGauge(), *registry_, "stagewright_planner_build_info", "1, with the version.")
        .Add({{"version", STAGEWRIGHT_VERSION}})
        .Set(1);
  }

  void CountPlan(const std::string& planner, const std::string& result, const std::string& source,
                 double seconds) override {
    plans_.Add({{"planner", planner}, {"result", result}, {"source", source}}).Increment();
    plan_seconds_.Add({{"source", source}}, kPlanBuckets).Observe(seconds);
  }

  void CountCacheUse(const std::string& result) override {
    cache_.Add({{"result", result}}).Increment();
  }

  void CountCall(const std::string& method, const std::string& code, double seconds) override {
    absl::MutexLock lock(&calls_mutex_);
    CallSeries& series = SeriesOf(method);
    Counter*& finished = series.finished[code];
    if (finished == nullptr) finished = &requests_.Add({{"method", method}, {"code", code}});
    finished->Increment();
    series.seconds->Observe(seconds);
  }

  void CountOpen(const std::string& method, int more) override {
    absl::MutexLock lock(&calls_mutex_);
    SeriesOf(method).open->Increment(more);
  }

  void CountEvent(const Event& event) override {
    absl::MutexLock lock(&mutex_);
    jobs_.Count(event);
  }

  void ObserveJob(const Job& job) override {
    absl::MutexLock lock(&mutex_);
    jobs_.Observe(job);
  }

  void ForgetJob(JobState state) override {
    absl::MutexLock lock(&mutex_);
    jobs_.AddEnded(state, -1);
  }

  void CountEndedBefore(JobState state, int64_t jobs) override {
    absl::MutexLock lock(&mutex_);
    jobs_.AddEnded(state, jobs);
  }

  void Sample(const PlannerSample& sample) override {
    absl::MutexLock lock(&mutex_);
    queue_.Set(sample.queued_plans);
    CatchUp(rejected_, static_cast<double>(sample.rejected_plans));
    devices_.Add({{"state", "free"}}).Set(static_cast<double>(sample.free_devices));
    devices_.Add({{"state", "held"}}).Set(static_cast<double>(sample.held_devices));
    devices_.Add({{"state", "cordoned"}}).Set(static_cast<double>(sample.cordoned_devices));
    devices_.Add({{"state", "quarantined"}}).Set(static_cast<double>(sample.quarantined_devices));
    workers_.Set(static_cast<double>(sample.workers.size()));
    cache_bytes_.Set(static_cast<double>(sample.cached_plan_bytes));
    state_bytes_.Set(static_cast<double>(sample.state_bytes));
    state_free_.Set(static_cast<double>(sample.state_free_bytes));
    CatchUp(audit_failures_, static_cast<double>(sample.audit_failures));
    ShowHeartbeats(sample.workers);
    ShowProcess();
  }

  void CountStoreCall(const StoreCall& call) override {
    store_seconds_.Add({{"call", call.name}}, kCallBuckets)
        .Observe(absl::ToDoubleSeconds(call.took));
    // That a key is absent, or a condition does not hold, is an answer.
    const bool answered = call.code == absl::StatusCode::kOk ||
                          call.code == absl::StatusCode::kNotFound ||
                          call.code == absl::StatusCode::kAborted;
    if (answered) return;
    store_failures_.Add({{"call", call.name}, {"code", absl::StatusCodeToString(call.code)}})
        .Increment();
  }

  void ShowStore(bool writable) override { store_writable_.Set(writable ? 1 : 0); }

  std::string address() const override { return address_; }

 private:
  // Those of a method. They are kept because Family::Add makes a metric, a histogram with all its
  // buckets, only to find that it has it.
  struct CallSeries {
    Gauge* open = nullptr;
    Histogram* seconds = nullptr;
    std::map<std::string, Counter*> finished;  // By status code.
  };

  CallSeries& SeriesOf(const std::string& method) ABSL_EXCLUSIVE_LOCKS_REQUIRED(calls_mutex_) {
    CallSeries& series = calls_[method];
    if (series.open == nullptr) {
      series.open = &open_.Add({{"method", method}});
      series.seconds = &request_seconds_.Add({{"method", method}}, kCallBuckets);
    }
    return series;
  }

  void ShowHeartbeats(const std::vector<v1::Worker>& workers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::set<std::string> present;
    for (const v1::Worker& worker : workers) {
      const absl::Time heard = absl::FromUnixSeconds(worker.last_heartbeat_time().seconds()) +
                               absl::Nanoseconds(worker.last_heartbeat_time().nanos());
      heartbeat_age_.Add({{"worker", worker.name()}})
          .Set(absl::ToDoubleSeconds(absl::Now() - heard));
      present.insert(worker.name());
    }
    for (const std::string& worker : shown_workers_) {
      if (!present.contains(worker))
        heartbeat_age_.Remove(&heartbeat_age_.Add({{"worker", worker}}));
    }
    shown_workers_ = std::move(present);
  }

  // By the names that Prometheus' own clients have.
  void ShowProcess() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const ProcessStats stats = ReadProcessStats();
    CatchUp(cpu_seconds_, stats.cpu_seconds);
    resident_bytes_.Set(static_cast<double>(stats.resident_bytes));
    virtual_bytes_.Set(static_cast<double>(stats.virtual_bytes));
    start_time_.Set(stats.start_time_seconds);
    open_files_.Set(static_cast<double>(stats.open_files));
    most_files_.Set(static_cast<double>(stats.most_files));
    threads_.Set(static_cast<double>(stats.threads));
  }

  const Histogram::BucketBoundaries kPlanBuckets = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                                    1,     3,     10,   30,   100};
  const Histogram::BucketBoundaries kCallBuckets = {0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                                    1,      3,     10,    30,   100,  1000};

  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  Family<Counter>& plans_ = Make(BuildCounter(), *registry_, "stagewright_planner_plans_total",
                                 "Searches, by planner, result and source: a call or a job.");
  Family<Histogram>& plan_seconds_ =
      Make(BuildHistogram(), *registry_, "stagewright_planner_plan_seconds",
           "Time of a search, by source: a call or a job.");
  Family<Counter>& cache_ = Make(BuildCounter(), *registry_, "stagewright_planner_plan_cache_total",
                                 "Plan calls that an earlier answer served (hit), that shared a "
                                 "search (shared) and that began one (miss).");
  Gauge& cache_bytes_ = Make(BuildGauge(), *registry_, "stagewright_planner_plan_cache_bytes",
                             "Questions and answers that the plan cache keeps.")
                            .Add({});
  Gauge& queue_ = Make(BuildGauge(), *registry_, "stagewright_planner_pool_queue_length",
                       "Planning requests that wait for a thread.")
                      .Add({});
  Counter& rejected_ = Make(BuildCounter(), *registry_, "stagewright_planner_pool_rejected_total",
                            "Planning requests refused because the queue was full.")
                           .Add({});
  Gauge& workers_ =
      Make(BuildGauge(), *registry_, "stagewright_planner_workers", "Connected workers.").Add({});
  Family<Gauge>& devices_ = Make(BuildGauge(), *registry_, "stagewright_planner_devices",
                                 "Devices of connected workers: held by a job, free for one, or "
                                 "kept from jobs as cordoned, draining ones too, or quarantined.");
  Family<Gauge>& heartbeat_age_ =
      Make(BuildGauge(), *registry_, "stagewright_planner_worker_heartbeat_age_seconds",
           "Since a connected worker was last heard of.");
  Gauge& state_bytes_ = Make(BuildGauge(), *registry_, "stagewright_planner_state_bytes",
                             "What the planner's state takes on its disk.")
                            .Add({});
  Gauge& state_free_ = Make(BuildGauge(), *registry_, "stagewright_planner_state_free_bytes",
                            "What is free on the disk of the planner's state.")
                           .Add({});
  Gauge& store_writable_ =
      Make(BuildGauge(), *registry_, "stagewright_planner_store_writable",
           "1 if what happens to jobs can be stored; 0 while they wait for the store.")
          .Add({});
  Counter& audit_failures_ =
      Make(BuildCounter(), *registry_, "stagewright_planner_audit_failures_total",
           "Lines that the file of --audit-log did not take; the planner's log has them.")
          .Add({});
  Family<Histogram>& store_seconds_ =
      Make(BuildHistogram(), *registry_, "stagewright_planner_store_seconds",
           "Time of calls of the store, by kind of call.");
  Family<Counter>& store_failures_ =
      Make(BuildCounter(), *registry_, "stagewright_planner_store_failures_total",
           "Calls of the store that failed, by kind of call and status code.");
  Family<Counter>& requests_ =
      Make(BuildCounter(), *registry_, "stagewright_planner_rpc_requests_total",
           "Finished calls, by method and status code.");
  Family<Histogram>& request_seconds_ =
      Make(BuildHistogram(), *registry_, "stagewright_planner_rpc_seconds",
           "Time of finished calls, by method; of streams, how long they were open.");
  Family<Gauge>& open_ = Make(BuildGauge(), *registry_, "stagewright_planner_rpc_open",
                              "Calls and streams that are open, by method.");
  Counter& cpu_seconds_ =
      Make(BuildCounter(), *registry_, "process_cpu_seconds_total", "User and system CPU time.")
          .Add({});
  Gauge& resident_bytes_ =
      Make(BuildGauge(), *registry_, "process_resident_memory_bytes", "Resident memory.").Add({});
  Gauge& virtual_bytes_ =
      Make(BuildGauge(), *registry_, "process_virtual_memory_bytes", "Virtual memory.").Add({});
  Gauge& start_time_ = Make(BuildGauge(), *registry_, "process_start_time_seconds",
                            "When the process started, since the epoch.")
                           .Add({});
  Gauge& open_files_ =
      Make(BuildGauge(), *registry_, "process_open_fds", "Open file descriptors.").Add({});
  Gauge& most_files_ =
      Make(BuildGauge(), *registry_, "process_max_fds", "Most open file descriptors.").Add({});
  Gauge& threads_ = Make(BuildGauge(), *registry_, "process_threads", "Threads.").Add({});
  absl::Mutex calls_mutex_;
  std::map<std::string, CallSeries> calls_ ABSL_GUARDED_BY(calls_mutex_);
  absl::Mutex mutex_;
  JobSeries jobs_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> shown_workers_ ABSL_GUARDED_BY(mutex_);
  prometheus::Exposer exposer_;
  std::string address_;
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
