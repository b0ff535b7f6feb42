// check_job_trace PLANNER JOB: prints "steps N ratio R", where the recorded trace of the job has N
// steps, all in the order of the job's programs, and R is the median over the steps but the first
// two of replayed / measured step time. Exits with 1 and a message if the trace breaks the program.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <vector>

#include "common/base/status.h"
#include "common/program/trace.h"
#include "common/wire/strategy_proto.h"
#include "planner_service/simulator/measured_durations.h"
#include "planner_service/simulator/simulator.h"
#include "stagewright/v1/job_service.grpc.pb.h"

namespace stagewright {
namespace {

// From the first compute action to the last end: receives are posted before a step has work.
Nanos MeasuredStep(const std::vector<TraceEvent>& trace, int32_t step) {
  Nanos start = std::numeric_limits<Nanos>::max(), end = 0;
  for (const TraceEvent& event : trace) {
    if (event.step != step) continue;
    if (IsCompute(event.action.kind)) start = std::min(start, event.start);
    end = std::max(end, event.end);
  }
  return end - start;
}

absl::Status Run(const char* planner, const char* job) {
  const auto stub =
      v1::JobService::NewStub(grpc::CreateChannel(planner, grpc::InsecureChannelCredentials()));
  v1::GetJobRequest get;
  get.set_name(job);
  v1::GetJobResponse found;
  v1::GetJobTraceRequest ask;
  ask.set_name(job);
  v1::GetJobTraceResponse recorded;
  grpc::ClientContext first, second;
  grpc::Status status = stub->GetJob(&first, get, &found);
  if (status.ok()) status = stub->GetJobTrace(&second, ask, &recorded);
  if (!status.ok()) return absl::UnavailableError(status.error_message());

  ASSIGN_OR_RETURN(const Program program, FromProto(found.job().plan().program()));
  std::vector<TraceEvent> trace;
  int32_t last = -1;
  for (const v1::TraceEvent& proto : recorded.measured()) {
    ASSIGN_OR_RETURN(TraceEvent event, FromProto(proto));
    last = std::max(last, event.step);
    trace.push_back(event);
  }
  RETURN_IF_ERROR(CheckTrace(program, trace));
  std::vector<double> ratios;
  for (int32_t step = 2; step <= last; ++step) {
    ASSIGN_OR_RETURN(const auto durations, MakeMeasuredDurations(program, trace, step));
    ASSIGN_OR_RETURN(const Simulation replay, Simulate(program, *durations, {}));
    ratios.push_back(static_cast<double>(replay.step_time) /
                     static_cast<double>(MeasuredStep(trace, step)));
  }
  if (ratios.empty()) return absl::FailedPreconditionError("fewer than three recorded steps");
  std::sort(ratios.begin(), ratios.end());
  std::printf("steps %d ratio %.4f\n", last + 1, ratios[ratios.size() / 2]);
  return absl::OkStatus();
}

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = stagewright::Run(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
