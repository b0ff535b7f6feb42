#include "tests/golden/plans/random_cases.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/topology/presets.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/golden/plans/answers.h"
#include "tests/support/clusters.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/small_problems.h"

namespace stagewright::golden {
namespace {

using testing::Rng;
using testing::Uniform;

constexpr int32_t kCases = 200;
constexpr int32_t kDevices[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

// What a request refers to.
struct Task {
  Graph graph;
  Cluster cluster;
  std::unique_ptr<testing::SmallProblem> small;
  PlanRequest request;
};

struct OptionSet {
  const char* name;
  void (*apply)(PlanOptions& options);
};
constexpr OptionSet kOptionSets[] = {
    {"default", [](PlanOptions&) {}},
    {"alone", [](PlanOptions& options) { options.allow_replicas = false; }},
    {"mixed",
     [](PlanOptions& options) {
       options.per_stage_micro_batch = true;
       options.max_k = 2;
     }},
    {"recompute", [](PlanOptions& options) { options.recompute = RecomputePolicy::kAlways; }},
    {"kept", [](PlanOptions& options) { options.recompute = RecomputePolicy::kNever; }},
    {"chain", [](PlanOptions& options) { options.sequential = true; }},
    {"loops",
     [](PlanOptions& options) {
       options.max_loops = 2;
       options.split_backward = false;
     }},
    {"async", [](PlanOptions& options) { options.asynchronous = true; }},
    {"sync", [](PlanOptions& options) { options.asynchronous = options.vertical_sync = true; }},
};

// The cluster with devices so slow that computing takes longer than sending.
Cluster Slowed(const Cluster& cluster) {
  constexpr double kFactor = 1e5;
  ClusterData data = cluster.data();
  for (DeviceKind& kind : data.kinds) {
    kind.flops_per_second /= kFactor;
    kind.memory_bytes_per_second /= kFactor;
  }
  return Cluster::Create(std::move(data)).value();
}

// Executable graphs with constants and values that cannot be cut, on nodes like Summit's.
void DrawExecutable(Rng& random, int32_t devices, Task& task) {
  task.graph = testing::RandomGraph(random, static_cast<int32_t>(Uniform(random, 4, 16)));
  task.cluster = Slowed(Subcluster(ClusterPreset("summit:16").value(), devices));
}

// Measured costs on equal devices, whose memory binds now and then.
void DrawProfile(Rng& random, int32_t devices, Task& task) {
  task.graph = testing::RandomProfile(random, static_cast<int32_t>(Uniform(random, 4, 16)));
  const Bytes memory = Uniform(random, 0, 2) == 0 ? 160 * kMiB : 16 * kGiB;
  task.cluster = testing::FlatCluster(devices, memory, kMicrosecond, 1e10);
}

// A network on at most as many devices of one or two kinds.
void DrawNetwork(Rng& random, int32_t devices, Task& task) {
  task.graph = testing::RandomNetwork(random, static_cast<int32_t>(Uniform(random, 4, 16)));
  task.cluster = Slowed(testing::RandomCluster(random, devices));
}

constexpr const char* kKinds[] = {"small", "executable", "profile", "network"};

std::unique_ptr<Task> MakeTask(int32_t index) {
  auto task = std::make_unique<Task>();
  const int32_t kind = index % 4;
  Rng random(70'000 + static_cast<uint64_t>(index));
  const int32_t devices = kDevices[index / 4 % std::size(kDevices)];
  task->request.mini_batch = 4 * Uniform(random, 1, 8);
  task->request.optimizer = static_cast<Optimizer>(Uniform(random, 0, 2));
  if (kind == 0) {
    task->small = testing::MakeSmallProblem(index);
    task->graph = task->small->graph;
    task->cluster = task->small->cluster;
    task->request.mini_batch = task->small->mini_batch;
    task->request.costs = task->small->costs.get();
  } else {
    constexpr void (*kDraw[])(Rng&, int32_t, Task&) = {DrawExecutable, DrawProfile, DrawNetwork};
    kDraw[kind - 1](random, devices, *task);
  }
  task->request.graph = &task->graph;
  task->request.cluster = &task->cluster;
  kOptionSets[index / 4 % std::size(kOptionSets)].apply(task->request.options);
  return task;
}

// The default planner takes a second: the short form asks it about few graphs.
bool IsWanted(Form form, const std::string& planner, int32_t index) {
  return form == Form::kLong || planner != kDefaultPlanner || index % 20 == 0;
}

}  // namespace

Cases RandomCases() {
  Cases cases{PlanColumns(), {}, ""};
  for (int32_t i = 0; i < kCases; ++i) {
    const std::string name = absl::StrFormat("%03d/%s/%s", i, kKinds[i % 4],
                                             kOptionSets[i / 4 % std::size(kOptionSets)].name);
    cases.cases.push_back({name, [i](Form form) {
                             return AskPlanners(MakeTask(i)->request,
                                                [=](const std::string& planner) {
                                                  return IsWanted(form, planner, i);
                                                });
                           }});
  }
  return cases;
}

}  // namespace stagewright::golden
