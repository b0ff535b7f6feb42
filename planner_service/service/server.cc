#include "planner_service/service/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/channel/address.h"
#include "common/clock/steady_now.h"
#include "common/log/log.h"
#include "planner_service/access/roles.h"
#include "planner_service/intake/bounded_service.h"
#include "planner_service/lifecycle/job_manager.h"
#include "planner_service/links/link_prober.h"
#include "planner_service/profiles/profile_store.h"
#include "planner_service/service/call_metrics.h"
#include "planner_service/service/job_rpc.h"
#include "planner_service/service/planner_rpc.h"
#include "planner_service/service/profile_rpc.h"
#include "planner_service/service/rpc.h"
#include "planner_service/service/topology_rpc.h"
#include "planner_service/store/disk_use.h"
#include "planner_service/store/sqlite_store.h"

#ifndef STAGEWRIGHT_VERSION
#error "STAGEWRIGHT_VERSION comes from the build"
#endif

namespace stagewright {
namespace {

constexpr int64_t kCachedPlanBytes = int64_t{64} << 20;

// Where the device is counted.
int64_t& CountOf(const RegisteredDevice& device, PlannerSample& sample) {
  if (!device.job.empty()) return sample.held_devices;
  if (device.available) return sample.free_devices;
  return device.availability == v1::WORKER_AVAILABILITY_OPEN ? sample.quarantined_devices
                                                             : sample.cordoned_devices;
}

// Answers what is offered at another port, in words that help to find it.
class OfferedElsewhere : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Refusal : public grpc::ServerGenericBidiReactor {
     public:
      explicit Refusal(grpc::Status status) { Finish(std::move(status)); }
      void OnDone() override { delete this; }
    };
    absl::string_view service = context->method();
    absl::ConsumePrefix(&service, "/");
    service = service.substr(0, service.find('/'));
    return new Refusal(
        grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                     absl::StrCat(context->method(),
                                  " is not offered at this port: workers come in at that of "
                                  "--worker-listen, ",
                                  IsForWorkers(service) ? "and this is that of --listen"
                                                        : "clients at that of --listen")));
  }
};

class RunningServer : public PlannerServer {
 public:
  explicit RunningServer(const ServerOptions& options)
      : options_(options),
        request_budget_(std::make_shared<MessageBudget>(LargestMessage())),
        worker_budget_(LargestMessage()) {}

  ~RunningServer() override { Shutdown(absl::Seconds(1)); }

  absl::Status Init() {
    RETURN_IF_ERROR(CheckOptions(options_));
    door_ = options_.opened_door;
    if (door_ == nullptr) {
      ASSIGN_OR_RETURN(door_, Door::Open(options_.listen, options_.worker_listen, options_.door));
    }
    ASSIGN_OR_RETURN(OpenedStore opened, options_.open_store != nullptr
                                             ? options_.open_store()
                                             : OpenSqliteStore(options_.state));
    store_ = std::move(opened.store);
    notes_ = std::move(opened.notes);
    profiles_ = std::make_unique<ProfileStore>(store_.get());
    if (!options_.metrics_listen.empty()) {
      ASSIGN_OR_RETURN(metrics_, PlannerMetrics::Serve(options_.metrics_listen));
      store_ = std::make_unique<TimedStore>(
          std::move(store_), [this](const StoreCall& call) { metrics_->CountStoreCall(call); });
    }
    cache_ = std::make_unique<PlanCache>(
        [this](const v1::PlanRequest& request, SearchContext& context) {
          return SearchPlan(request, context, *profiles_, metrics_.get());
        },
        [this] { return profiles_->version(); }, kCachedPlanBytes,
        [this](PlanCache::Use use) { CountUse(use); });
    pool_ = std::make_unique<PlanningPool>(options_.planning_threads, options_.planning_queue);
    job_pool_ = std::make_unique<PlanningPool>(options_.planning_threads, options_.planning_queue);
    links_ = std::make_unique<LinkProber>(store_.get(), &registry_);
    if (const absl::Status links = links_->Recover(); absl::IsDataLoss(links)) {
      notes_.push_back(absl::StrCat(links.message(), "; links are measured anew"));
    } else {
      RETURN_IF_ERROR(links);
    }
    JobManagerOptions job_options;
    job_options.measuring = [this] { return links_->busy(); };
    job_options.worker_timeout = options_.worker_timeout;
    job_options.quotas = options_.quotas;
    if (options_.keep_jobs > 0) job_options.keep.count = static_cast<size_t>(options_.keep_jobs);
    if (options_.keep_days > 0) job_options.keep.age = absl::Hours(24) * options_.keep_days;
    if (metrics_ != nullptr) {
      job_options.on_forgotten = [this](int64_t /*job*/, JobState state) {
        metrics_->ForgetJob(state);
      };
      job_options.on_found_ended = [this](JobState state, int64_t jobs) {
        metrics_->CountEndedBefore(state, jobs);
      };
      job_options.on_change = [this](const Job& job) { metrics_->ObserveJob(job); };
      job_options.on_event = [this](const Event& event) { metrics_->CountEvent(event); };
      job_options.on_planned = [this](const std::string& planner, const std::string& result,
                                      double seconds) {
        metrics_->CountPlan(planner, result, "job", seconds);
      };
    }
    jobs_ = std::make_unique<JobManager>(store_.get(), profiles_.get(), &registry_, job_pool_.get(),
                                         job_options);
    RETURN_IF_ERROR(jobs_->Recover());
    for (const std::string& note : jobs_->notes()) notes_.push_back(note);
    profiling_ = std::make_unique<Profiling>(profiles_.get(), &registry_);
    planner_rpc_ = std::make_unique<WithHandlers<PlannerRpc>>(
        door_.get(), pool_.get(), cache_.get(), &streams_, metrics_.get(),
        [this](v1::GetServerResponse& response) { Describe(response); }, profiles_.get());
    job_rpc_ = std::make_unique<WithHandlers<JobRpc>>(jobs_.get(), &streams_, door_.get());
    profile_rpc_ =
        std::make_unique<WithHandlers<ProfileRpc>>(profiling_.get(), &streams_, door_.get());
    worker_rpc_ = std::make_unique<WithHandlers<WorkerRpc>>(jobs_.get(), profiling_.get(),
                                                            &registry_, links_.get(), &streams_,
                                                            door_.get(), &worker_budget_);
    topology_rpc_ =
        std::make_unique<WithHandlers<TopologyRpc>>(&registry_, links_.get(), door_.get());
    RETURN_IF_ERROR(ListenToAll());
    ticker_ = std::thread([this] { Tick(); });
    return absl::OkStatus();
  }

  void Shutdown(absl::Duration grace) override {
    StopTicking();
    if (ports_.empty()) return;
    jobs_->Suspend();  // Streams that we close are no lost workers.
    streams_.CloseAll();
    const auto deadline = ClockIn(grace);
    for (Port& port : ports_) port.server->Shutdown(deadline);
    for (Port& port : ports_) port.server->Wait();
    ports_.clear();
  }

  std::string address() const override { return address_; }
  std::string worker_address() const override { return worker_address_; }
  std::string security() const override { return door_->description(); }
  std::string metrics_address() const override {
    return metrics_ == nullptr ? "" : metrics_->address();
  }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  // A port with its own bounds on memory: what floods one leaves the other alone.
  struct Port {
    std::unique_ptr<OfferedElsewhere> elsewhere;  // Outlives the server.
    std::unique_ptr<grpc::Server> server;
    std::string address;  // As bound.
  };

  size_t LargestMessage() const { return static_cast<size_t>(options_.max_message_mib) << 20; }

  absl::Status ListenToAll() {
    static std::once_flag plugins;
    std::call_once(plugins, [] {
      grpc::EnableDefaultHealthCheckService(true);
      grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    });
    const std::vector<std::pair<std::string, grpc::Service*>> services = {
        Bound(v1::PlannerService::service_full_name(), planner_rpc_.get()),
        Bound(v1::JobService::service_full_name(), job_rpc_.get()),
        Bound(v1::ProfileService::service_full_name(), profile_rpc_.get()),
        Bound(v1::WorkerService::service_full_name(), worker_rpc_.get()),
        Bound(v1::TopologyService::service_full_name(), topology_rpc_.get())};
    if (options_.worker_listen.empty()) {
      RETURN_IF_ERROR(Listen(options_.listen, services));
    } else {
      std::vector<std::pair<std::string, grpc::Service*>> of_clients, of_workers;
      for (const auto& service : services)
        (IsForWorkers(service.first) ? of_workers : of_clients).push_back(service);
      RETURN_IF_ERROR(Listen(options_.listen, of_clients));
      RETURN_IF_ERROR(Listen(options_.worker_listen, of_workers));
      worker_address_ = ports_.back().address;
    }
    address_ = ports_.front().address;
    return absl::OkStatus();
  }

  template <typename Service>
  std::pair<std::string, grpc::Service*> Bound(const char* name, WithHandlers<Service>* service) {
    bounded_.push_back(std::make_unique<BoundedService>(
        name, service, RequestBounds{request_budget_, ToGrpc(NoRoomForMessage())}));
    return {name, bounded_.back().get()};
  }

  absl::Status Listen(const std::string& listen,
                      const std::vector<std::pair<std::string, grpc::Service*>>& services) {
    grpc::ServerBuilder builder;
    int port = 0;
    // Without this, a second planner would silently share the port.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Workers ping every 5 s to notice a planner that is gone; gRPC's own limit is 5 minutes.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 2000);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
    grpc::ResourceQuota quota("stagewright-planner");
    quota.Resize(LargestMessage() * kMostMessages);
    builder.SetResourceQuota(quota);
    builder.AddListeningPort(listen, door_->credentials(), &port);
    builder.SetMaxReceiveMessageSize(options_.max_message_mib << 20);
    builder.SetMaxSendMessageSize(-1);
    RefuseCompression(builder);
    for (const auto& service : services) builder.RegisterService(service.second);
    if (std::all_of(services.begin(), services.end(),
                    [](const auto& service) { return IsForWorkers(service.first); }))
      builder.SetOption(WithoutReflection());
    auto elsewhere = std::make_unique<OfferedElsewhere>();
    if (!options_.worker_listen.empty()) builder.RegisterCallbackGenericService(elsewhere.get());
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> intercept;
    if (metrics_ != nullptr) intercept.push_back(CountCalls(metrics_.get()));
    if (options_.intercept) intercept.push_back(options_.intercept());
    builder.experimental().SetInterceptorCreators(std::move(intercept));
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (server == nullptr || port == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", listen, ": is the port in use?"));
    }
    // By the service's name, too: a client may ask for the one that it needs.
    grpc::HealthCheckServiceInterface* health = server->GetHealthCheckService();
    health->SetServingStatus(true);
    for (const auto& service : services) health->SetServingStatus(service.first, true);
    ports_.push_back({std::move(elsewhere), std::move(server),
                      absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port)});
    return absl::OkStatus();
  }

  void StopTicking() {
    if (!ticker_.joinable()) return;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    ticker_.join();
  }

  void Tick() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::milliseconds(500), [this] { return stopping_; })) {
      jobs_->Tick(SteadyNow());
      profiling_->Tick();
      links_->Tick(SteadyNow());
      ShowStore(jobs_->CheckWritable());
      if (metrics_ != nullptr) metrics_->Sample(Sample());
    }
  }

  // Planning goes on without a store; jobs wait.
  void ShowStore(const absl::Status& writable) {
    if (metrics_ != nullptr) metrics_->ShowStore(writable.ok());
    if (writable.ok() == writable_) return;
    writable_ = writable.ok();
    ports_.front().server->GetHealthCheckService()->SetServingStatus(
        v1::JobService::service_full_name(), writable_);
    if (writable_) {
      Log(LogLevel::kInfo, "the state can be written again");
    } else {
      Log(LogLevel::kError, writable.message());
    }
  }

  void CountUse(PlanCache::Use use) {
    if (metrics_ == nullptr) return;
    const char* const names[] = {"hit", "shared", "miss"};
    metrics_->CountCacheUse(names[static_cast<int>(use)]);
  }

  PlannerSample Sample() const {
    PlannerSample sample;
    for (const PlanningPool* pool : {pool_.get(), job_pool_.get()}) {
      sample.queued_plans += pool->queued();
      sample.rejected_plans += pool->rejected();
    }
    for (const RegisteredDevice& device : registry_.Devices(/*free_only=*/false))
      ++CountOf(device, sample);
    sample.workers = registry_.List();
    sample.cached_plan_bytes = cache_->bytes();
    const DiskUse disk = DiskUseOf(options_.state);
    sample.state_bytes = disk.used_bytes;
    sample.state_free_bytes = disk.free_bytes;
    sample.audit_failures = door_->audit_failures();
    return sample;
  }

  void Describe(v1::GetServerResponse& response) const {
    response.set_version(STAGEWRIGHT_VERSION);
    response.mutable_start_time()->set_seconds(absl::ToUnixSeconds(start_time_));
    response.set_state_path(options_.state);
    const DiskUse disk = DiskUseOf(options_.state);
    response.set_state_bytes(disk.used_bytes);
    response.set_state_free_bytes(disk.free_bytes);
    response.set_plans_waiting(pool_->queued() + job_pool_->queued());
  }

  const ServerOptions options_;
  // What callers hold leaves workers their own.
  const std::shared_ptr<MessageBudget> request_budget_;
  MessageBudget worker_budget_;
  const absl::Time start_time_ = absl::Now();
  std::shared_ptr<Door> door_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ProfileStore> profiles_;
  std::unique_ptr<PlannerMetrics> metrics_;
  WorkerRegistry registry_;
  OpenStreams streams_{options_.owner_streams};
  std::unique_ptr<PlanCache> cache_;  // Outlives the pool, whose threads answer to it.
  std::unique_ptr<PlanningPool> pool_;
  std::unique_ptr<PlanningPool> job_pool_;  // Jobs do not wait for plans of calls.
  std::unique_ptr<LinkProber> links_;
  std::unique_ptr<JobManager> jobs_;
  std::unique_ptr<Profiling> profiling_;
  std::unique_ptr<WithHandlers<PlannerRpc>> planner_rpc_;
  std::unique_ptr<WithHandlers<JobRpc>> job_rpc_;
  std::unique_ptr<WithHandlers<ProfileRpc>> profile_rpc_;
  std::unique_ptr<WithHandlers<WorkerRpc>> worker_rpc_;
  std::unique_ptr<WithHandlers<TopologyRpc>> topology_rpc_;
  std::vector<std::unique_ptr<BoundedService>> bounded_;
  std::vector<Port> ports_;  // The first is that of clients.
  std::string address_, worker_address_;
  std::vector<std::string> notes_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  bool writable_ = true;  // The ticker's.
  std::thread ticker_;
};

}  // namespace

absl::Status CheckOptions(const ServerOptions& options) {
  RETURN_IF_ERROR(CheckAddress("--listen", options.listen));
  if (!options.worker_listen.empty())
    RETURN_IF_ERROR(CheckAddress("--worker-listen", options.worker_listen));
  if (!options.metrics_listen.empty())
    RETURN_IF_ERROR(CheckAddress("--metrics-listen", options.metrics_listen));
  return Door::CheckOptions(options.listen, options.worker_listen, options.door);
}

absl::StatusOr<std::unique_ptr<PlannerServer>> PlannerServer::Start(const ServerOptions& options) {
  auto server = std::make_unique<RunningServer>(options);
  RETURN_IF_ERROR(server->Init());
  return std::unique_ptr<PlannerServer>(std::move(server));
}

}  // namespace stagewright
