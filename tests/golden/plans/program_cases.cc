#include "tests/golden/plans/program_cases.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/lowering/lower.h"
#include "common/policies/breadth_first.h"
#include "common/policies/looped.h"
#include "common/policies/zero_bubble.h"
#include "common/program/text.h"
#include "common/strategy/check_strategy.h"
#include "common/strategy/orders.h"
#include "common/validation/validate.h"
#include "planner_service/simulator/durations.h"
#include "planner_service/simulator/model_durations.h"
#include "planner_service/simulator/simulator.h"
#include "tests/golden/plans/cell.h"
#include "tests/support/random.h"
#include "tests/support/random_orders.h"
#include "tests/support/schedule_cases.h"

namespace stagewright::golden {
namespace {

using testing::RandomCase;
using testing::Rng;

constexpr int kOfEachKind = 5;

using Orders = absl::StatusOr<std::vector<DeviceOrder>>;

// Puts a policy's orders into the strategy; of no use where the policy refuses it.
bool SetPolicy(RandomCase& drawn, const Orders& orders) {
  if (!orders.ok()) return false;
  SetOrders(drawn.graph, *orders, drawn.strategy);
  return true;
}

// One kind of strategy. `shape` makes a drawn one of that kind, or says that it cannot be one.
struct Kind {
  const char* name;
  RandomCase (*draw)(Rng& rng);
  bool (*shape)(Rng& rng, RandomCase& drawn);
  LowerOptions lower = {};
};

bool AsDrawn(Rng&, RandomCase&) { return true; }

bool FillAndDrain(Rng&, RandomCase& drawn) {
  for (Stage& stage : drawn.strategy.stages) {
    stage.schedule.in_flight = drawn.strategy.mini_batch;
  }
  return true;
}

bool AnyOrder(Rng& rng, RandomCase& drawn) {
  testing::DrawOrders(rng, drawn.graph, drawn.strategy);
  return true;
}

bool Looped(Rng& rng, RandomCase& drawn) {
  const LoopedSchedule schedule{testing::Uniform(rng, 1, 4), {}};
  return drawn.shared_devices &&
         SetPolicy(drawn, LoopedOrders(drawn.graph, drawn.strategy, schedule));
}

bool BreadthFirst(Rng&, RandomCase& drawn) {
  return drawn.shared_devices && SetPolicy(drawn, BreadthFirstOrders(drawn.graph, drawn.strategy));
}

bool ZeroBubbleH1(Rng&, RandomCase& drawn) {
  return SetPolicy(drawn, ZeroBubbleH1Orders(drawn.graph, drawn.strategy));
}

bool ZeroBubbleV(Rng&, RandomCase& drawn) {
  return drawn.shared_devices && SetPolicy(drawn, ZeroBubbleVOrders(drawn.graph, drawn.strategy));
}

bool Asynchronous(Rng&, RandomCase& drawn) {
  for (Stage& stage : drawn.strategy.stages) stage.recompute = false;
  drawn.strategy.asynchronous = true;
  return true;
}

bool VerticalSync(Rng& rng, RandomCase& drawn) {
  drawn.strategy.vertical_sync = true;
  return Asynchronous(rng, drawn);
}

constexpr Kind kKinds[] = {
    {"kfkb", testing::MakeRandomCase, AsDrawn},
    {"forward", testing::MakeRandomCase, AsDrawn, {.training = false}},
    {"norm", testing::MakeRandomCase, AsDrawn, {.gradient_norm = true}},
    {"1f1b", testing::MakeUniformCase, AsDrawn, {Optimizer::kSgd}},
    {"gpipe", testing::MakeUniformCase, FillAndDrain},
    {"orders", testing::MakeRandomCase, AnyOrder},
    {"looped", testing::MakeUniformCase, Looped},
    {"breadth-first", testing::MakeUniformCase, BreadthFirst},
    {"zero-bubble-h1", testing::MakeUniformCase, ZeroBubbleH1, {Optimizer::kSgdMomentum}},
    {"zero-bubble-v", testing::MakeUniformCase, ZeroBubbleV},
    {"async", testing::MakeUniformCase, Asynchronous},
    {"sync", testing::MakeUniformCase, VerticalSync},
};

// The first strategy of the kind, from a seed on, that has a pipeline.
RandomCase Drawn(const Kind& kind, uint64_t seed) {
  Rng rng(seed);
  for (;;) {
    RandomCase drawn = kind.draw(rng);
    if (drawn.strategy.stages.size() < 2 || !kind.shape(rng, drawn)) continue;
    if (CheckStrategy(drawn.graph, drawn.cluster, drawn.strategy).ok()) return drawn;
  }
}

std::string OrderOf(const std::vector<TraceEvent>& timeline) {
  std::string order;
  for (const TraceEvent& event : timeline) {
    absl::StrAppend(&order, event.device.value(), " ", event.step, " ", ToString(event.action),
                    "\n");
  }
  return order;
}

std::string MemoryCell(const Simulation& simulation, const Program& program) {
  std::string memory;
  Bytes most = 0;
  for (size_t d = 0; d < program.devices.size(); ++d) {
    const Bytes simulated = simulation.devices[d].peak_memory;
    absl::StrAppend(&memory, simulated, " ", PeakMemory(program.devices[d]), "\n");
    most = std::max(most, simulated);
  }
  return WordCell(memory, absl::StrCat(most, "B"));
}

absl::StatusOr<Cells> Ask(const Kind& kind, uint64_t seed) {
  const RandomCase drawn = Drawn(kind, seed);
  const auto costs = MakeAnalyticCostModel(drawn.graph);
  ASSIGN_OR_RETURN(const Program program, Lower(drawn.graph, drawn.strategy, *costs, kind.lower));
  RETURN_IF_ERROR(Validate(program, {}));
  const auto durations =
      MakeModelDurations(drawn.graph, program, drawn.cluster, *costs, kind.lower.optimizer);
  ASSIGN_OR_RETURN(const Simulation simulation, Simulate(program, *durations, {.timeline = true}));
  size_t actions = 0;
  for (const DeviceProgram& device : program.devices) {
    actions += device.prologue.size() + device.body.size() + device.epilogue.size();
  }
  return Cells{{"program", WordCell(ToText(program), absl::StrCat(actions))},
               {"order", TimedCell(OrderOf(simulation.timeline), simulation.step_time)},
               {"memory", MemoryCell(simulation, program)}};
}

}  // namespace

Cases ProgramCases() {
  Cases cases{{"program", "order", "memory"}, {}, ""};
  for (const Kind& kind : kKinds) {
    for (int i = 0; i < kOfEachKind; ++i) {
      cases.cases.push_back({absl::StrCat(kind.name, "/", i), [&kind, i](Form) {
                               return Ask(kind, 500 + static_cast<uint64_t>(i));
                             }});
    }
  }
  return cases;
}

}  // namespace stagewright::golden
