#include "tests/bench/plan_rows.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cost/analytic.h"
#include "common/cost/node_weights.h"
#include "common/topology/presets.h"
#include "common/topology/uniform.h"
#include "common/wire/graph_file.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/planner_table.h"
#include "planner_service/importers/profile.h"
#include "tests/support/model_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/shared_graphs.h"

namespace stagewright::bench {
namespace {

// A problem with what it refers to.
struct Task {
  explicit Task(Graph g, Cluster c, int64_t samples)
      : graph(std::move(g)),
        cluster(std::move(c)),
        costs(MakeAnalyticCostModel(graph)),
        mini_batch(samples) {}

  // As the front door does it.
  absl::Status Coarse() {
    if (!graph.executable()) {
      ASSIGN_OR_RETURN(operators, OneOperatorPerNode(graph));
      return absl::OkStatus();
    }
    const int64_t share = std::max<int64_t>(1, mini_batch / (2 * cluster.size()));
    ASSIGN_OR_RETURN(operators,
                     Coarsen(graph, NodeWeights(graph, *costs, cluster.kinds()[0], share)));
    return absl::OkStatus();
  }
  Problem problem() const { return {&graph, &operators, &cluster, costs.get(), mini_batch}; }

  Graph graph;
  Cluster cluster;
  std::unique_ptr<CostModel> costs;
  OperatorGraph operators;
  int64_t mini_batch;
};

absl::StatusOr<std::string> Found(const Task& task, const Outcome& outcome) {
  if (!outcome.strategy)
    return absl::StrCat(TerminationName(outcome.termination), ": ", outcome.reason);
  ASSIGN_OR_RETURN(const Evaluation evaluation,
                   Evaluate(task.graph, task.cluster, *task.costs, *outcome.strategy, {}));
  return absl::StrFormat("%.4g ms, %d stages%s", ToSeconds(evaluation.iteration_time) * 1e3,
                         static_cast<int>(outcome.strategy->stages.size()),
                         outcome.termination == Termination::kOptimal ? ", optimal" : "");
}

absl::StatusOr<Search> SearchOf(const std::string& planner_name, std::shared_ptr<Task> task,
                                PlanOptions options) {
  RETURN_IF_ERROR(task->Coarse());
  ASSIGN_OR_RETURN(std::shared_ptr<Planner> planner, MakePlanner(planner_name));
  return Search([planner, task, options]() -> absl::StatusOr<Finding> {
    SearchContext context;
    Finding finding;
    const Stopwatch watch;
    ASSIGN_OR_RETURN(const Outcome outcome, planner->Solve(task->problem(), options, context));
    finding.seconds = watch.Seconds();
    ASSIGN_OR_RETURN(finding.text, Found(*task, outcome));
    return finding;
  });
}

absl::StatusOr<Cluster> Links(int32_t devices) {
  return UniformPreset(absl::StrCat("uniform:", devices));
}

// A network of examples/graphs on Summit nodes, mini-batch as in GraphPipe's appendix A.2.
struct Model {
  const char* file;
  int64_t mini_batch;  // At 32 devices.
  const char* original;
};
constexpr Model kModels[] = {{"mmt", 512, "10.1 s (paper)"},
                             {"dlrm", 2048, "54.6 s (paper)"},
                             {"candle-uno", 32768, "22.4 s (paper)"}};

// The model on Summit's nodes of 4 devices.
absl::StatusOr<std::shared_ptr<Task>> ModelTask(const std::string& graphs, const Model& model,
                                                int32_t devices) {
  ASSIGN_OR_RETURN(Graph graph, ReadGraphFile(absl::StrCat(graphs, "/", model.file, ".swg")));
  ASSIGN_OR_RETURN(Cluster cluster, ClusterPreset(absl::StrCat("summit:", devices / 4)));
  return std::make_shared<Task>(std::move(graph), std::move(cluster),
                                model.mini_batch * devices / 32);
}

Row ModelRow(const std::string& graphs, const Model& model, int32_t devices,
             const std::string& planner, const std::string& what, PlanOptions options, double must,
             double aim) {
  Row row;
  row.name = absl::StrCat(planner, what.empty() ? "" : "-kfkb", "/", model.file, "/", devices);
  row.problem = absl::StrCat(planner, ", ", model.file, ", ", devices, " devices", what);
  row.must = must;
  row.aim = aim;
  if (planner == "graphpipe" && devices == 32) row.original = model.original;
  row.prepare = [=]() -> absl::StatusOr<Search> {
    ASSIGN_OR_RETURN(std::shared_ptr<Task> task, ModelTask(graphs, model, devices));
    return SearchOf(planner, std::move(task), options);
  };
  return row;
}

// The time until the first plan of `auto` comes, through the front door.
Search FirstPlanOf(std::shared_ptr<Task> task) {
  return [task]() -> absl::StatusOr<Finding> {
    PlanRequest request;
    request.graph = &task->graph;
    request.cluster = &task->cluster;
    request.costs = task->costs.get();
    request.mini_batch = task->mini_batch;
    request.planner = kDefaultPlanner;
    SearchContext context;
    Finding finding;
    const Stopwatch watch;
    RETURN_IF_ERROR(SolvePlan(request, context, [&](const JudgedPlan& plan) {
                      if (!finding.text.empty()) return;
                      finding.seconds = watch.Seconds();
                      finding.text = absl::StrFormat(
                          "%.4g ms, %d stages", ToSeconds(plan.evaluation.iteration_time) * 1e3,
                          static_cast<int>(plan.plan.strategy.stages.size()));
                      context.Cancel();
                    }).status());
    return finding;
  };
}

Row FirstPlanRow(const std::string& name, const std::string& problem,
                 std::function<absl::StatusOr<std::shared_ptr<Task>>()> make) {
  Row row;
  row.name = absl::StrCat("first/", name);
  row.problem = absl::StrCat("first plan of auto, ", problem);
  row.must = 0.1;
  row.aim = 0.02;
  row.prepare = [make = std::move(make)]() -> absl::StatusOr<Search> {
    ASSIGN_OR_RETURN(std::shared_ptr<Task> task, make());
    return FirstPlanOf(std::move(task));
  };
  return row;
}

absl::StatusOr<Graph> Profile(const std::string& name) {
  const std::string path = SharedGraph(name);
  if (path.empty()) return absl::NotFoundError(absl::StrCat("no profile ", name));
  ASSIGN_OR_RETURN(ImportedProfile profile, ReadProfile(ProfileFormat::kPipeDream, path));
  return std::move(profile.graph);
}

// A profile of our own: a sample is a micro-batch of the profile's.
Row ProfileRow(const std::string& planner, const std::string& profile, int32_t devices, double must,
               double aim, const std::string& original) {
  Row row;
  row.name = absl::StrCat(planner, "/", profile, "/", devices);
  row.problem = absl::StrCat(planner, ", ", profile, ", ", devices, " devices");
  row.must = must;
  row.aim = aim;
  row.original = original;
  row.prepare = [=]() -> absl::StatusOr<Search> {
    ASSIGN_OR_RETURN(Graph graph, Profile(absl::StrCat("synthetic/", profile, ".graph.txt")));
    ASSIGN_OR_RETURN(Cluster cluster, Links(devices));
    PlanOptions options;
    options.micro_batch = 1;
    return SearchOf(planner, std::make_shared<Task>(std::move(graph), std::move(cluster), devices),
                    options);
  };
  return row;
}

Row BuiltRow(const std::string& name, const std::string& problem, std::function<Graph()> graph,
             int32_t devices, int64_t mini_batch, PlanOptions options) {
  Row row;
  row.name = name;
  row.problem = problem;
  row.prepare = [=]() -> absl::StatusOr<Search> {
    ASSIGN_OR_RETURN(Cluster cluster, Links(devices));
    return SearchOf(name.substr(0, name.find('/')),
                    std::make_shared<Task>(graph(), std::move(cluster), mini_batch), options);
  };
  return row;
}

// A fan of four branches of three that joins: 14 operators.
Graph Fourteen() {
  std::vector<testing::Work> nodes;
  testing::Work join = {kMillisecond, 2 * kMillisecond, kMiB, kMiB, {}};
  nodes.push_back(join);
  for (int32_t v = 0; v < 12; ++v) {
    nodes.push_back(
        {(1 + v % 5) * kMillisecond, (2 + v % 3) * kMillisecond, kMiB, kMiB, {v % 3 == 0 ? 0 : v}});
    if (v % 3 == 2) join.after.push_back(v + 1);
  }
  nodes.push_back(join);
  return testing::ProfiledGraph(nodes);
}

void AddFirstPlanRows(const std::string& graphs, std::vector<Row>& rows) {
  for (const Model& model : kModels) {
    for (int32_t devices : {16, 32}) {
      rows.push_back(FirstPlanRow(absl::StrCat(model.file, "/", devices),
                                  absl::StrCat(model.file, ", ", devices, " devices"),
                                  [=] { return ModelTask(graphs, model, devices); }));
    }
  }
  const auto built = [&](const std::string& name, const std::string& problem,
                         std::function<Graph()> graph, int32_t devices, int64_t mini_batch) {
    rows.push_back(FirstPlanRow(name, problem, [=]() -> absl::StatusOr<std::shared_ptr<Task>> {
      ASSIGN_OR_RETURN(Cluster cluster, Links(devices));
      return std::make_shared<Task>(graph(), std::move(cluster), mini_batch);
    }));
  };
  built(
      "mmt-8x64/1024", "MMT of 8 branches of 64 layers, 1,024 devices",
      [] { return testing::MmtGraph(8, 64); }, 1024, 16384);
  built(
      "chain-10000/1024", "chain of 10,000 operators, 1,024 devices",
      [] { return testing::UnevenChain(10'000); }, 1024, 16384);
}

}  // namespace

std::vector<Row> PlannerRows(const std::string& graphs) {
  std::vector<Row> rows;
  PlanOptions mixed;
  mixed.per_stage_micro_batch = true;
  mixed.max_k = 4;
  for (const Model& model : kModels) {
    for (int32_t devices : {16, 32}) {
      rows.push_back(ModelRow(graphs, model, devices, "graphpipe", "", {}, 0.010, 0.005));
    }
  }
  for (const Model& model : kModels) {
    rows.push_back(
        ModelRow(graphs, model, 32, "graphpipe", ", micro-batches per stage, kFkB", mixed, 1, 0.2));
  }
  rows.push_back(BuiltRow("graphpipe/mmt-8x64/1024",
                          "graphpipe, MMT of 8 branches of 64 layers, 1,024 devices",
                          [] { return testing::MmtGraph(8, 64); }, 1024, 16384, {}));
  rows.back().must = 10;
  rows.back().aim = 2;
  rows.push_back(ProfileRow("pfeife", "mmt4_op", 8, 2, 0.2, "44 s"));
  PlanOptions loops;
  loops.micro_batch = 1;
  loops.max_loops = 2;
  rows.push_back(BuiltRow(
      "pfeife/chain-1645/8", "pfeife, chain of 1,645 operators, 8 devices, up to 2 loops",
      [] { return testing::UnevenChain(1645); }, 8, 8, loops));
  rows.back().must = 10;
  rows.back().aim = 1;
  rows.back().original = "under 5 minutes (paper, another chain)";
  for (const Model& model : kModels) {
    rows.push_back(ModelRow(graphs, model, 32, "auto", "", {}, 5, 1));
  }
  rows.push_back(BuiltRow("auto/mmt-8x64/1024",
                          "auto, MMT of 8 branches of 64 layers, 1,024 devices",
                          [] { return testing::MmtGraph(8, 64); }, 1024, 16384, {}));
  rows.back().must = 5;
  rows.back().aim = 1;
  for (const char* profile : {"mmt4_layer", "mmt4_op", "candle7", "dlrm7x7"}) {
    rows.push_back(ProfileRow("auto", profile, 8, 5, 1, ""));
  }
  AddFirstPlanRows(graphs, rows);
  // With larger micro-batches, one stage on all devices meets the lower bound at once.
  PlanOptions single;
  single.micro_batch = 1;
  rows.push_back(BuiltRow("exact/14-operators/4",
                          "exact, 14 operators, 4 devices, micro-batches of one sample", Fourteen,
                          4, 8, single));
  rows.back().must = 60;
  rows.back().aim = 5;
  return rows;
}

std::vector<Growth> Growths() {
  std::vector<Growth> growths;
  const auto add = [&](const char* planner, const char* what, int32_t size, int32_t branches,
                       int32_t layers) {
    growths.push_back({planner, what, size, [=]() -> absl::StatusOr<Search> {
                         ASSIGN_OR_RETURN(Cluster cluster, Links(16));
                         return SearchOf(planner,
                                         std::make_shared<Task>(testing::MmtGraph(branches, layers),
                                                                std::move(cluster), 64),
                                         {});
                       }});
  };
  for (const char* planner :
       {"graphpipe", "sequential", "pipedream", "piper", "dapple", "pfeife", "auto"}) {
    for (int32_t layers : {4, 8, 16, 32, 64}) add(planner, "layers", layers, 4, layers);
    for (int32_t branches : {2, 4, 8, 16, 32}) add(planner, "branches", branches, branches, 8);
  }
  return growths;
}

}  // namespace stagewright::bench
