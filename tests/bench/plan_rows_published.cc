// The published planners' problems as their own tests set them: same input, same objective.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner_service/importers/profile.h"
#include "planner_service/planners/pipedream/recurrence.h"
#include "planner_service/planners/piper/from_problem.h"
#include "planner_service/planners/piper/solve.h"
#include "tests/bench/plan_rows.h"
#include "tests/planner_service/planners/dapple/profiles.h"
#include "tests/support/shared_graphs.h"

namespace stagewright::bench {
namespace {

absl::StatusOr<std::shared_ptr<const Graph>> Profile(ProfileFormat format,
                                                     const std::string& name) {
  const std::string path = SharedGraph(name);
  if (path.empty()) return absl::NotFoundError(absl::StrCat("no profile ", name));
  ASSIGN_OR_RETURN(ImportedProfile profile, ReadProfile(format, path));
  return std::make_shared<const Graph>(std::move(profile.graph));
}

// PipeDream's states are at most these; a model with more downsets is cut along a few orders.
constexpr int32_t kMostStates = 1024;

std::string PipeDream(const Graph& graph, int32_t machines) {
  using namespace pipedream;
  LayerProfile profile;
  profile.dag = graph.dag();
  for (const Node& node : graph.nodes()) {
    profile.seconds.push_back(ToSeconds(node.cost->forward + node.cost->backward));
    profile.output.push_back(static_cast<double>(node.cost->activation_bytes));
    profile.parameters.push_back(static_cast<double>(node.cost->parameter_bytes));
  }
  const SearchContext context;
  const States states(profile.dag, profile.seconds, profile.output, kMostStates, context);
  const StateCosts costs = StateCosts::Of(profile, states);
  const Level level{machines, 1e9};
  const Rules rules = RulesAsCoded();
  const Limits limits;
  Recurrence recurrence(states, costs, rules, level, 1, limits, context);
  recurrence.Run(0, recurrence.ChainBound());
  const double bottleneck = recurrence.At(states.size() - 1, machines);
  const auto splits = recurrence.Fewest(states.size() - 1, machines, bottleneck);
  return absl::StrFormat("%.7g s, %d stages", bottleneck, static_cast<int>(splits.size()));
}

Row PipeDreamRow(const std::string& file, int32_t machines, double must, double aim,
                 const std::string& original) {
  Row row{absl::StrCat("pipedream/", file, "/", machines),
          absl::StrCat("pipedream, ", file, ", ", machines, " devices"),
          must,
          aim,
          original,
          {}};
  row.prepare = [=]() -> absl::StatusOr<Search> {
    ASSIGN_OR_RETURN(auto graph, Profile(ProfileFormat::kPipeDream,
                                         absl::StrCat("pipedream/", file, ".graph.txt")));
    return Search([=]() -> absl::StatusOr<Finding> {
      return Timed([&] { return PipeDream(*graph, machines); });
    });
  };
  return row;
}

struct PiperCase {
  const char* file;
  PiperMachine machine;
};

Row PiperRow(const PiperCase& c, double must, double aim, const std::string& original) {
  const std::string name(c.file);
  const std::string model = name.substr(name.find('/') + 1, name.find('.') - name.find('/') - 1);
  Row row{absl::StrCat("piper/", model, "/", c.machine.devices),
          absl::StrCat("piper, ", model, ", ", c.machine.devices, " devices"),
          must,
          aim,
          original,
          {}};
  row.prepare = [=]() -> absl::StatusOr<Search> {
    ASSIGN_OR_RETURN(auto graph, Profile(ProfileFormat::kPiper, c.file));
    return Search([=]() -> absl::StatusOr<Finding> {
      return Timed([&] {
        const PiperProblem problem = PiperProblemOfProfile(*graph, c.machine);
        const PiperAnswer answer = SolvePiper(problem, {}, SearchContext());
        if (!answer.partition) return std::string("nothing fits");
        return absl::StrFormat("%.6g s, %d stages%s",
                               PiperObjective(problem, *answer.partition) * 1e-9,
                               static_cast<int>(answer.partition->size()),
                               answer.lattice ? "" : " (topological orders)");
      });
    });
  };
  return row;
}

// As the published program: without sources that are called Input, over the numbers of copies.
std::string Dapple(const Graph& graph, const std::vector<int32_t>& nodes, int64_t global_batch,
                   int64_t micro_batch) {
  const std::vector<dapple::ProgramPlan> plans =
      dapple::ProgramPlans(graph, nodes, global_batch, micro_batch);
  const dapple::ProgramPlan& best = dapple::Best(plans);
  return absl::StrFormat("speed-up %.3f, %d stages", best.speed_up,
                         static_cast<int>(best.plan.stages.size()));
}

Row DappleRow() {
  Row row{"dapple/bert-48/4x8", "dapple, bert-48, 4 nodes of 8", 2, 0.2, "173 s", {}};
  row.prepare = []() -> absl::StatusOr<Search> {
    ASSIGN_OR_RETURN(auto graph, Profile(ProfileFormat::kDapple, "dapple/bert-48-pbs-2.txt"));
    return Search([=]() -> absl::StatusOr<Finding> {
      return Timed([&] { return Dapple(*graph, {8, 8, 8, 8}, 128, 2); });
    });
  };
  return row;
}

}  // namespace

std::vector<Row> PublishedRows() {
  constexpr double kPublished = 25.0 * (1 << 30);
  constexpr double kSynthetic = 12.5e9;
  std::vector<Row> rows;
  rows.push_back(PipeDreamRow("resnet50", 32, 0.070, 0.010, "6.87 s"));
  rows.push_back(
      PipeDreamRow("inception_v3", 32, 1, 0.2, "memory error after 77 s, 221,564 states"));
  rows.push_back(
      PiperRow({"piper/resnet.json", {64, 16 * kGiB, kPublished, 7680}}, 0.7, 0.07, "7.43 s"));
  rows.push_back(PiperRow({"piper/gnmt.json", {4, 5 * kGiB / 2, kPublished, 256}}, 10, 1, "169 s"));
  for (const char* file :
       {"synthetic/candle7.json", "synthetic/mmt4_op.json", "synthetic/dlrm7x7.json"}) {
    rows.push_back(PiperRow({file, {8, 16 * kGiB, kSynthetic, 32}}, 10, 1, "rejected"));
  }
  rows.push_back(DappleRow());
  return rows;
}

}  // namespace stagewright::bench
