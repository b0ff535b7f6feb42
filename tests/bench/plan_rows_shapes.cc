// The default planner on problems of many shapes, asked as a user asks: through the front door,
// with default options, operators cut where they bind.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/topology/presets.h"
#include "common/topology/uniform.h"
#include "common/wire/graph_file.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/bench/plan_rows.h"
#include "tests/support/model_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random_graphs.h"
#include "tests/support/shared_graphs.h"

namespace stagewright::bench {
namespace {

using testing::Work;

struct Shape {
  std::string name;
  std::function<absl::StatusOr<Graph>()> graph;
  std::string cluster;  // A preset.
  int64_t mini_batch = 1;
  PlanOptions options = {};
  Bytes memory = 0;    // Devices have no more than this; 0: what the preset says.
  bool mixed = false;  // Every other device has half the rate.
};

absl::StatusOr<Cluster> ClusterOf(const Shape& shape) {
  ASSIGN_OR_RETURN(Cluster cluster, LoadCluster(shape.cluster));
  ClusterData data = cluster.data();
  DeviceKind slow = data.kinds[0];
  slow.name += "-slow";
  slow.flops_per_second /= 2;
  if (shape.mixed) data.kinds.push_back(slow);
  for (size_t d = 0; d < data.devices.size(); ++d) {
    Device& device = data.devices[d];
    if (shape.memory > 0) device.memory = std::min(device.memory, shape.memory);
    if (shape.mixed && d % 2 == 1) device.kind = static_cast<int32_t>(data.kinds.size()) - 1;
  }
  return Cluster::Create(std::move(data));
}

Search SearchOf(std::shared_ptr<const Graph> graph, std::shared_ptr<const Cluster> cluster,
                int64_t mini_batch, const PlanOptions& options) {
  return [=]() -> absl::StatusOr<Finding> {
    PlanRequest request;
    request.graph = graph.get();
    request.cluster = cluster.get();
    request.mini_batch = mini_batch;
    request.planner = kDefaultPlanner;
    request.options = options;
    SearchContext context;
    Finding finding;
    const Stopwatch watch;
    ASSIGN_OR_RETURN(const PlanResponse response, SolvePlan(request, context));
    finding.seconds = watch.Seconds();
    if (!response.best) {
      finding.text = absl::StrCat(TerminationName(response.termination), ": ", response.reason);
      return finding;
    }
    const Strategy& strategy = response.best->plan.strategy;
    finding.text = absl::StrFormat(
        "%.5g ms, %d stages, bound %.4g", ToSeconds(response.best->evaluation.iteration_time) * 1e3,
        static_cast<int>(strategy.stages.size()), ToSeconds(response.lower_bound) * 1e3);
    absl::StrAppendFormat(&finding.text, ", work %.2f s", ToSeconds(context.work()));
    for (const OperatorSplit& split : strategy.splits)
      absl::StrAppend(&finding.text, ", ", split.node, " in ", split.parts);
    return finding;
  };
}

// Equal layers in a row, or in branches that join every `period` layers.
Graph Fans(int32_t blocks, int32_t branches, int32_t length) {
  const Work layer = {200 * kMicrosecond, 400 * kMicrosecond, kMiB, 8 * kMiB, {}};
  std::vector<Work> nodes = {layer};
  for (int32_t block = 0; block < blocks; ++block) {
    const auto fork = static_cast<int32_t>(nodes.size()) - 1;
    Work join = layer;
    for (int32_t branch = 0; branch < branches; ++branch) {
      for (int32_t i = 0; i < length; ++i) {
        nodes.push_back(layer);
        nodes.back().after = {i == 0 ? fork : static_cast<int32_t>(nodes.size()) - 2};
      }
      join.after.push_back(static_cast<int32_t>(nodes.size()) - 1);
    }
    nodes.push_back(join);
  }
  return testing::ProfiledGraph(nodes);
}

Graph Tangle(int32_t nodes) {
  testing::Rng random(45);
  return testing::RandomProfile(random, nodes);
}

absl::StatusOr<Graph> Profile(const std::string& name) {
  const std::string path = SharedGraph(name);
  if (path.empty()) return absl::NotFoundError(absl::StrCat("no profile ", name));
  const bool json = path.ends_with(".json");
  const ProfileFormat format = json                        ? ProfileFormat::kPiper
                               : name.find("dapple/") == 0 ? ProfileFormat::kDapple
                                                           : ProfileFormat::kPipeDream;
  ASSIGN_OR_RETURN(ImportedProfile profile, ReadProfile(format, path));
  return std::move(profile.graph);
}

std::vector<Shape> Shapes(const std::string& graphs) {
  std::vector<Shape> shapes;
  const auto add = [&](std::string name, std::function<Graph()> graph, std::string cluster,
                       int64_t mini_batch) -> Shape& {
    return shapes.emplace_back(Shape{std::move(name),
                                     [=]() -> absl::StatusOr<Graph> { return graph(); },
                                     std::move(cluster), mini_batch});
  };
  for (const auto& [file, mini_batch] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"mmt", 16}, {"dlrm", 64}, {"candle-uno", 1024}, {"transformer", 16}}) {
    for (int32_t devices : {4, 8, 16, 32, 64}) {
      shapes.push_back(
          {absl::StrCat(file, "/", devices),
           [path = absl::StrCat(graphs, "/", file, ".swg")] { return ReadGraphFile(path); },
           absl::StrCat("summit:", devices / 4), mini_batch * devices});
    }
  }
  for (const char* name : {"mmt4_layer", "mmt4_op", "candle7", "dlrm7x7"}) {
    for (int32_t devices : {8, 16, 32}) {
      shapes.push_back(
          {absl::StrCat(name, "/", devices),
           [path = absl::StrCat("synthetic/", name, ".graph.txt")] { return Profile(path); },
           absl::StrCat("uniform:", devices), devices});
    }
  }
  for (const char* name : {"pipedream/alexnet.graph.txt", "pipedream/gnmt.graph.txt",
                           "pipedream/inception_v3.graph.txt", "pipedream/resnet50.graph.txt",
                           "pipedream/resnext50.graph.txt", "pipedream/vgg16.graph.txt",
                           "dapple/bert-48-pbs-2.txt", "dapple/gnmt-16-pbs-64.txt",
                           "dapple/vgg-19-pbs-32.txt", "piper/gnmt.json", "piper/resnet.json"}) {
    shapes.push_back({absl::StrCat(name, "/16"), [=] { return Profile(name); }, "uniform:16", 64});
  }
  add(
      "mmt-8x64/1024", [] { return testing::MmtGraph(8, 64); }, "uniform:1024", 16384);
  add(
      "mmt-8x64/256", [] { return testing::MmtGraph(8, 64); }, "uniform:256", 4096);
  add(
      "mmt-8x64/64", [] { return testing::MmtGraph(8, 64); }, "uniform:64", 1024);
  add(
      "mmt-64x8/64", [] { return testing::MmtGraph(64, 8); }, "uniform:64", 1024);
  add(
      "candle-64x4/128", [] { return testing::CandleGraph(64, 4); }, "uniform:128", 1024);
  add(
      "dlrm-32x32/128", [] { return testing::DlrmGraph(32, 32); }, "uniform:128", 4096);
  add(
      "chain-10000/1024", [] { return testing::UnevenChain(10'000); }, "uniform:1024", 16384);
  add(
      "chain-10000/16", [] { return testing::UnevenChain(10'000); }, "uniform:16", 256);
  add(
      "chain-2000/64", [] { return testing::UnevenChain(2000); }, "uniform:64", 1024);
  add(
      "chain-2000/64/2000-micro-batches", [] { return testing::UnevenChain(2000); }, "uniform:64",
      2000)
      .options.micro_batch = 1;
  add(
      "chain-64/64/2000-micro-batches", [] { return testing::UnevenChain(64); }, "uniform:64", 2000)
      .options.micro_batch = 1;
  add(
      "mmt-4x8/64/2000-micro-batches", [] { return testing::MmtGraph(4, 8); }, "uniform:64", 2000)
      .options.micro_batch = 1;
  add(
      "mmt-4x8/8/1000000-samples", [] { return testing::MmtGraph(4, 8); }, "uniform:8", 1'000'000);
  add(
      "fans-100x8x4/64", [] { return Fans(100, 8, 4); }, "uniform:64", 512);
  add(
      "fan-1000/64", [] { return Fans(1, 1000, 2); }, "uniform:64", 512);
  add(
      "fan-1000/1024", [] { return Fans(1, 1000, 8); }, "uniform:1024", 4096);
  add(
      "tangle-300/16", [] { return Tangle(300); }, "uniform:16", 256);
  add(
      "tangle-3000/64", [] { return Tangle(3000); }, "uniform:64", 512);
  add(
      "tangle-10000/16", [] { return Tangle(10'000); }, "uniform:16", 256);
  add(
      "tangle-10000/256", [] { return Tangle(10'000); }, "uniform:256", 1024);
  for (const Bytes memory : {2 * kGiB, 4 * kGiB, 8 * kGiB}) {
    add(
        absl::StrCat("mmt-8x64/64/", memory / kGiB, "GiB"), [] { return testing::MmtGraph(8, 64); },
        "uniform:64", 1024)
        .memory = memory;
    add(
        absl::StrCat("mmt-4x8/32/", memory / kGiB, "GiB"), [] { return testing::MmtGraph(4, 8); },
        "uniform:32", 512)
        .memory = memory;
  }
  for (const char* file : {"mmt", "dlrm", "candle-uno"}) {
    shapes.push_back(
        {absl::StrCat(file, "/16/mixed"),
         [path = absl::StrCat(graphs, "/", file, ".swg")] { return ReadGraphFile(path); },
         "summit:4", 512});
    shapes.back().mixed = true;
  }
  return shapes;
}

// A row for every shape, with the search that `make` makes of its graph and cluster.
template <typename MakeSearch>
std::vector<Row> RowsOf(const std::string& graphs, const char* what, MakeSearch make) {
  std::vector<Row> rows;
  for (const Shape& shape : Shapes(graphs)) {
    Row row;
    row.name = shape.name;
    row.problem = absl::StrCat(what, ", ", shape.name);
    row.prepare = [shape, make]() -> absl::StatusOr<Search> {
      ASSIGN_OR_RETURN(Graph graph, shape.graph());
      ASSIGN_OR_RETURN(Cluster cluster, ClusterOf(shape));
      return make(std::make_shared<const Graph>(std::move(graph)),
                  std::make_shared<const Cluster>(std::move(cluster)), shape);
    };
    rows.push_back(std::move(row));
  }
  return rows;
}

// The plans that a search tells of, with the time of each since it began.
struct Told {
  std::vector<std::pair<double, Nanos>> plans;

  Nanos last() const { return plans.empty() ? Nanos(0) : plans.back().second; }
  // The first plan no slower than `most`, infinity without one.
  double When(Nanos most) const {
    for (const auto& [seconds, time] : plans) {
      if (time <= most) return seconds;
    }
    return std::numeric_limits<double>::infinity();
  }
  // The best plan until then.
  Nanos Until(double limit) const {
    Nanos best(0);
    for (const auto& [seconds, time] : plans) {
      if (seconds <= limit) best = time;
    }
    return best;
  }
};

absl::StatusOr<Told> Listen(PlanRequest request, int32_t effort) {
  request.options.effort = effort;
  SearchContext context;
  Told told;
  const Stopwatch watch;
  const auto improved = [&](const JudgedPlan& plan) {
    told.plans.emplace_back(watch.Seconds(), plan.evaluation.iteration_time);
  };
  ASSIGN_OR_RETURN(const PlanResponse response, SolvePlan(request, context, improved));
  if (response.best)
    told.plans.emplace_back(watch.Seconds(), response.best->evaluation.iteration_time);
  return told;
}

// When a search tells of a plan that is nearly what one of much more effort ends with: of its own,
// or where it never does, of that one.
Search NearlyOf(std::shared_ptr<const Graph> graph, std::shared_ptr<const Cluster> cluster,
                const Shape& shape) {
  constexpr int32_t kEffort = 12;  // Five seconds become a minute.
  constexpr double kNearly = 1.01;
  constexpr double kSoon = 2;
  return [=]() -> absl::StatusOr<Finding> {
    PlanRequest request;
    request.graph = graph.get();
    request.cluster = cluster.get();
    request.mini_batch = shape.mini_batch;
    request.planner = kDefaultPlanner;
    request.options = shape.options;
    ASSIGN_OR_RETURN(const Told once, Listen(request, 1));
    ASSIGN_OR_RETURN(const Told longer, Listen(request, kEffort));
    if (longer.plans.empty()) return absl::NotFoundError("no plan");
    const Nanos goal = std::min(once.last(), longer.last());
    const auto most = static_cast<Nanos>(kNearly * static_cast<double>(goal));
    Finding finding;
    finding.seconds = once.last() <= most ? once.When(most) : longer.When(most);
    const Nanos soon = once.Until(kSoon);
    finding.text =
        absl::StrFormat("%.5g ms after %g s (+%.2f %%), %.5g ms after %.2g s, %.5g ms after %.0f s",
                        ToSeconds(soon) * 1e3, kSoon, (ToSeconds(soon) / ToSeconds(goal) - 1) * 100,
                        ToSeconds(once.last()) * 1e3, once.plans.back().first,
                        ToSeconds(longer.last()) * 1e3, longer.plans.back().first);
    return finding;
  };
}

}  // namespace

std::vector<Row> ShapeRows(const std::string& graphs) {
  std::vector<Row> rows = RowsOf(graphs, "auto", [](auto graph, auto cluster, const Shape& shape) {
    return SearchOf(std::move(graph), std::move(cluster), shape.mini_batch, shape.options);
  });
  for (Row& row : rows) {
    row.must = 5;
    row.aim = 2;
    row.enough = 1;
  }
  return rows;
}

std::vector<Row> SoonRows(const std::string& graphs) {
  std::vector<Row> rows = RowsOf(graphs, "auto to within 1 %", NearlyOf);
  for (Row& row : rows) {
    row.must = row.aim = 2;
    row.enough = 0;
  }
  return rows;
}

}  // namespace stagewright::bench
