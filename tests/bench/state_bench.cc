// How quickly a planner starts with many ended jobs, and how much memory they take:
//   state_bench --jobs 20000 --layers 30 --file state.db
// writes the jobs unless the file is there, then reads them as a planner does.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/wire/graph_proto.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/jobs/job_store.h"
#include "planner_service/jobs/request_book.h"
#include "planner_service/lifecycle/job_manager.h"
#include "planner_service/store/sqlite_store.h"
#include "tests/support/layer_graphs.h"

namespace stagewright {
namespace {

struct Flags {
  std::string file = "state.db";
  int jobs = 20000;
  int layers = 30;
  bool alike = false;
};

absl::Status WriteJobs(const Flags& flags) {
  ASSIGN_OR_RETURN(const OpenedStore opened, OpenSqliteStore(flags.file));
  JobStore jobs(opened.store.get());
  v1::JobSpec spec;
  *spec.mutable_graph() = ToProto(testing::ChainGraph(flags.layers));
  spec.set_data_path("/data/digits.npz");
  spec.set_output_path("/models/digits");
  std::cout << "graph: " << spec.graph().ByteSizeLong() << " bytes" << std::endl;
  for (int number = 1; number <= flags.jobs; ++number) {
    if (!flags.alike) spec.mutable_graph()->set_name(absl::StrCat("graph-", number));
    Job job;
    job.number = number;
    SetSpec(spec, job);
    job.state = JobState::kSucceeded;
    job.create_time = job.end_time = absl::Now();
    // As clients that repeat calls name them.
    const std::string id = absl::StrFormat("8f14e45f-ceea-467f-a8c6-%012d", number);
    RETURN_IF_ERROR(jobs.Write(job, nullptr, id, DigestOfCancel(id)));
  }
  return absl::OkStatus();
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

absl::Status ReadJobs(const Flags& flags) {
  const absl::Time start = absl::Now();
  const int64_t before = ResidentBytes();
  ASSIGN_OR_RETURN(const OpenedStore opened, OpenSqliteStore(flags.file));
  const absl::Time open = absl::Now();
  WorkerRegistry registry;
  PlanningPool pool(1, 1);
  ProfileStore profiles(opened.store.get());
  JobManager jobs(opened.store.get(), &profiles, &registry, &pool, {});
  RETURN_IF_ERROR(jobs.Recover());
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  std::cout << "file: " << std::filesystem::file_size(flags.file) / 1000000 << " MB\n"
            << "checked in " << absl::FormatDuration(open - start) << ", read in "
            << absl::FormatDuration(absl::Now() - open) << "\n"
            << "resident: " << (ResidentBytes() - before) / 1000000 << " MB, at most "
            << usage.ru_maxrss / 1000 << " MB\n";
  return absl::OkStatus();
}

int Bench(int argc, char** argv) {
  Flags flags;
  CLI::App app("state_bench: starts with many ended jobs");
  app.option_defaults()->always_capture_default();
  app.add_option("--file", flags.file, "the state; written unless it is there");
  app.add_option("--jobs", flags.jobs, "how many");
  app.add_option("--layers", flags.layers, "of each job's graph");
  app.add_flag("--alike", flags.alike, "all jobs have one graph");
  CLI11_PARSE(app, argc, argv);
  if (!std::filesystem::exists(flags.file)) {
    // In a process of its own, whose memory does not count.
    const pid_t writer = fork();
    if (writer == 0) _exit(WriteJobs(flags).ok() ? 0 : 1);
    int status = 0;
    waitpid(writer, &status, 0);
    if (status != 0) return 1;
  }
  const absl::Status status = ReadJobs(flags);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) { return stagewright::Bench(argc, argv); }
