#include "worker_daemon/daemon/measuring/profile_run.h"

#include <utility>

#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "common/wire/graph_proto.h"
#include "common/wire/profile_proto.h"
#include "common/wire/training_proto.h"
#include "worker_daemon/profiler/operator_profiler.h"

namespace stagewright {

ProfileRun::ProfileRun(v1::ProfileOperators request, OfferedDevice device, int threads,
                       Report report, std::unique_ptr<ProfileRun> before)
    : request_(std::move(request)),
      device_(std::move(device)),
      threads_(threads),
      report_(std::move(report)),
      before_(std::move(before)),
      thread_([this] { Run(); }) {}

ProfileRun::~ProfileRun() {
  Stop();
  thread_.join();
}

void ProfileRun::Run() {
  before_.reset();
  v1::ConnectRequest message;
  v1::OperatorsProfiled& answer = *message.mutable_operators_profiled();
  answer.set_request(request_.request());
  const auto measure = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Graph graph, FromProto(request_.graph()));
    ProfileOptions options;
    options.torch_device = device_.torch_device;
    ASSIGN_OR_RETURN(options.precision, FromProto(request_.precision(), ""));
    options.most_samples = request_.most_samples();
    options.memory = device_.memory_limit > 0 ? device_.memory_limit : device_.memory;
    options.day = absl::FormatCivilTime(absl::ToCivilDay(absl::Now(), absl::UTCTimeZone()));
    options.stopped = [this] { return stopped_.load(); };
    ASSIGN_OR_RETURN(const ProfiledGraph profiled, ProfileOperators(graph, options));
    *answer.mutable_profile() = ToProto({"", ProfiledSoftware(threads_)}, profiled.operators);
    for (const UnmeasuredOperator& left : profiled.unmeasured) {
      v1::UnmeasuredOperator* entry = answer.add_unmeasured();
      entry->set_node(left.node);
      entry->set_reason(left.reason);
    }
    return absl::OkStatus();
  };
  if (const absl::Status status = measure(); !status.ok()) {
    answer.set_code(static_cast<int32_t>(status.code()));
    answer.set_message(std::string(status.message()));
  }
  report_(std::move(message));
}

}  // namespace stagewright
