#include "common/wire/strategy_proto.h"

#include <utility>

#include "common/wire/graph_proto.h"

namespace stagewright {
namespace {

template <typename Id, typename Repeated>
void AddIds(const std::vector<Id>& ids, Repeated* out) {
  for (Id id : ids) out->Add(id.value());
}

template <typename Id, typename Repeated>
std::vector<Id> Ids(const Repeated& values) {
  std::vector<Id> ids;
  ids.reserve(values.size());
  for (int32_t value : values) ids.push_back(Id(value));
  return ids;
}

// The wire's kinds are ours, one higher.
static_assert(static_cast<int>(ActionKind::kForward) + 1 == v1::ACTION_KIND_FORWARD);
static_assert(static_cast<int>(ActionKind::kBackward) + 1 == v1::ACTION_KIND_BACKWARD);
static_assert(static_cast<int>(ActionKind::kBackwardInput) + 1 == v1::ACTION_KIND_BACKWARD_INPUT);
static_assert(static_cast<int>(ActionKind::kBackwardWeight) + 1 == v1::ACTION_KIND_BACKWARD_WEIGHT);
static_assert(static_cast<int>(ActionKind::kRecompute) + 1 == v1::ACTION_KIND_RECOMPUTE);
static_assert(static_cast<int>(ActionKind::kSendActivation) + 1 == v1::ACTION_KIND_SEND_ACTIVATION);
static_assert(static_cast<int>(ActionKind::kReceiveActivation) + 1 ==
              v1::ACTION_KIND_RECEIVE_ACTIVATION);
static_assert(static_cast<int>(ActionKind::kSendGradient) + 1 == v1::ACTION_KIND_SEND_GRADIENT);
static_assert(static_cast<int>(ActionKind::kReceiveGradient) + 1 ==
              v1::ACTION_KIND_RECEIVE_GRADIENT);
static_assert(static_cast<int>(ActionKind::kAllReduce) + 1 == v1::ACTION_KIND_ALL_REDUCE);
static_assert(static_cast<int>(ActionKind::kOptimizerStep) + 1 == v1::ACTION_KIND_OPTIMIZER_STEP);
static_assert(static_cast<int>(ActionKind::kReduceScatter) + 1 == v1::ACTION_KIND_REDUCE_SCATTER);
static_assert(static_cast<int>(ActionKind::kAllGather) + 1 == v1::ACTION_KIND_ALL_GATHER);
static_assert(static_cast<int>(kLastActionKind) + 1 == v1::ActionKind_MAX);

static_assert(static_cast<int>(Pass::kForward) + 1 == v1::PASS_FORWARD);
static_assert(static_cast<int>(Pass::kRecompute) + 1 == v1::PASS_RECOMPUTE);
static_assert(static_cast<int>(Pass::kBackward) + 1 == v1::PASS_BACKWARD);
static_assert(static_cast<int>(Pass::kBackwardInput) + 1 == v1::PASS_BACKWARD_INPUT);
static_assert(static_cast<int>(Pass::kBackwardWeight) + 1 == v1::PASS_BACKWARD_WEIGHT);

v1::DeviceOrder ToProto(const DeviceOrder& order) {
  v1::DeviceOrder proto;
  proto.set_device(order.device.value());
  for (const ComputeStep& step : order.steps) {
    v1::ComputeStep* out = proto.add_steps();
    out->set_stage(step.stage.value());
    out->set_pass(static_cast<v1::Pass>(static_cast<int>(step.pass) + 1));
    out->set_micro_batch(step.index);
  }
  return proto;
}

// A pass that is not known becomes one that CheckStrategy refuses.
Pass FromProto(v1::Pass pass) {
  const int value = static_cast<int>(pass) - 1;
  return static_cast<Pass>(value < 0 || value > 255 ? 255 : value);
}

DeviceOrder FromProto(const v1::DeviceOrder& proto) {
  DeviceOrder order;
  order.device = DeviceId(proto.device());
  order.steps.reserve(proto.steps_size());
  for (const v1::ComputeStep& step : proto.steps())
    order.steps.push_back({StageId(step.stage()), FromProto(step.pass()), step.micro_batch()});
  return order;
}

v1::Action ToProto(const Action& action) {
  v1::Action proto;
  proto.set_kind(static_cast<v1::ActionKind>(static_cast<int>(action.kind) + 1));
  proto.set_stage(action.stage.value());
  proto.set_begin(action.samples.begin);
  proto.set_end(action.samples.end);
  proto.set_channel_plus_one(action.channel + 1);
  return proto;
}

absl::StatusOr<Action> FromProto(const v1::Action& proto) {
  if (proto.kind() <= v1::ACTION_KIND_UNSPECIFIED ||
      proto.kind() > static_cast<int>(kLastActionKind) + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("action.kind ", static_cast<int>(proto.kind()), " is not known"));
  }
  return Action{static_cast<ActionKind>(static_cast<int>(proto.kind()) - 1),
                StageId(proto.stage()),
                {proto.begin(), proto.end()},
                proto.channel_plus_one() - 1};
}

void AddSection(const std::vector<ProgramAction>& section,
                google::protobuf::RepeatedPtrField<v1::ProgramAction>* out) {
  for (const ProgramAction& item : section) {
    v1::ProgramAction* proto = out->Add();
    *proto->mutable_action() = ToProto(item.action);
    for (int32_t index : item.after) proto->add_after(index);
    proto->set_acquire_bytes(item.acquire.count());
    proto->set_release_bytes(item.release.count());
    for (const PassMark& mark : item.after_marks) {
      v1::PassMark* const out_mark = proto->add_after_marks();
      out_mark->set_action(mark.action);
      out_mark->set_node(mark.node);
    }
  }
}

absl::StatusOr<std::vector<ProgramAction>> Section(
    const google::protobuf::RepeatedPtrField<v1::ProgramAction>& protos) {
  std::vector<ProgramAction> section;
  section.reserve(protos.size());
  for (const v1::ProgramAction& proto : protos) {
    ProgramAction item;
    ASSIGN_OR_RETURN(item.action, FromProto(proto.action()));
    item.after.assign(proto.after().begin(), proto.after().end());
    item.acquire = Bytes(proto.acquire_bytes());
    item.release = Bytes(proto.release_bytes());
    for (const v1::PassMark& mark : proto.after_marks())
      item.after_marks.push_back({mark.action(), mark.node()});
    section.push_back(std::move(item));
  }
  return section;
}

v1::Channel ToProto(const Channel& channel) {
  v1::Channel proto;
  proto.set_from_stage(channel.from.value());
  proto.set_to_stage(channel.to.value());
  proto.set_source_device(channel.source.value());
  proto.set_target_device(channel.target.value());
  for (ValueRef value : channel.values) *proto.add_values() = ToProto(value);
  for (ValueRef value : channel.gradient_values) *proto.add_gradient_values() = ToProto(value);
  proto.set_activation_bytes_per_sample(channel.activation_bytes_per_sample.count());
  proto.set_gradient_bytes_per_sample(channel.gradient_bytes_per_sample.count());
  proto.set_has_gradient(channel.has_gradient);
  return proto;
}

Channel FromProto(const v1::Channel& proto) {
  Channel channel;
  channel.from = StageId(proto.from_stage());
  channel.to = StageId(proto.to_stage());
  channel.source = DeviceId(proto.source_device());
  channel.target = DeviceId(proto.target_device());
  for (const v1::ValueRef& value : proto.values())
    channel.values.push_back(stagewright::FromProto(value));
  for (const v1::ValueRef& value : proto.gradient_values())
    channel.gradient_values.push_back(stagewright::FromProto(value));
  channel.activation_bytes_per_sample = Bytes(proto.activation_bytes_per_sample());
  channel.gradient_bytes_per_sample = Bytes(proto.gradient_bytes_per_sample());
  channel.has_gradient = proto.has_gradient();
  return channel;
}

// The wire's values are ours, one higher.
static_assert(static_cast<int>(BatchStatistics::kWhole) + 1 == v1::BATCH_STATISTICS_WHOLE);
static_assert(static_cast<int>(BatchStatistics::kMicro) + 1 == v1::BATCH_STATISTICS_MICRO);
static_assert(static_cast<int>(BatchStatistics::kSynchronised) + 1 ==
              v1::BATCH_STATISTICS_SYNCHRONISED);
static_assert(static_cast<int>(OptimizerSharding::kNone) + 1 == v1::OPTIMIZER_SHARDING_NONE);
static_assert(static_cast<int>(OptimizerSharding::kStates) + 1 == v1::OPTIMIZER_SHARDING_STATES);

}  // namespace

v1::OptimizerSharding ToProto(OptimizerSharding sharding) {
  if (sharding == OptimizerSharding::kGradients) return v1::OPTIMIZER_SHARDING_GRADIENTS;
  return static_cast<v1::OptimizerSharding>(static_cast<int>(sharding) + 1);
}

OptimizerSharding FromProto(v1::OptimizerSharding sharding) {
  switch (sharding) {
    case v1::OPTIMIZER_SHARDING_STATES:
      return OptimizerSharding::kStates;
    case v1::OPTIMIZER_SHARDING_GRADIENTS:
      return OptimizerSharding::kGradients;
    default:
      return OptimizerSharding::kNone;
  }
}

v1::BatchStatistics ToProto(BatchStatistics statistics) {
  return static_cast<v1::BatchStatistics>(static_cast<int>(statistics) + 1);
}

BatchStatistics FromProto(v1::BatchStatistics statistics) {
  switch (statistics) {
    case v1::BATCH_STATISTICS_MICRO:
      return BatchStatistics::kMicro;
    case v1::BATCH_STATISTICS_SYNCHRONISED:
      return BatchStatistics::kSynchronised;
    default:
      return BatchStatistics::kWhole;
  }
}

v1::OperatorSplit ToProto(const OperatorSplit& split) {
  v1::OperatorSplit proto;
  proto.set_node(split.node);
  proto.set_parts(split.parts);
  return proto;
}

OperatorSplit FromProto(const v1::OperatorSplit& proto) { return {proto.node(), proto.parts()}; }

v1::Strategy ToProto(const Strategy& strategy) {
  v1::Strategy proto;
  proto.set_kind(strategy.kind == StrategyKind::kSequential ? v1::STRATEGY_KIND_SEQUENTIAL
                                                            : v1::STRATEGY_KIND_GRAPH);
  proto.set_mini_batch(strategy.mini_batch);
  for (const Stage& stage : strategy.stages) {
    v1::Stage* out = proto.add_stages();
    AddIds(stage.nodes, out->mutable_nodes());
    AddIds(stage.replicated, out->mutable_replicated_nodes());
    out->set_micro_batch(stage.micro_batch);
    AddIds(stage.devices, out->mutable_devices());
    out->set_in_flight(stage.schedule.in_flight);
    out->set_k(stage.schedule.k);
    out->set_recompute(stage.recompute);
  }
  for (const StageEdge& edge : strategy.edges) {
    v1::StageEdge* out = proto.add_edges();
    out->set_from(edge.from.value());
    out->set_to(edge.to.value());
  }
  for (const DeviceOrder& order : strategy.orders) *proto.add_orders() = ToProto(order);
  proto.set_asynchronous(strategy.asynchronous);
  proto.set_vertical_sync(strategy.vertical_sync);
  proto.set_batch_statistics(ToProto(strategy.batch_statistics));
  proto.set_bucket_bytes(strategy.bucket_bytes.count());
  proto.set_optimizer_sharding(ToProto(strategy.optimizer_sharding));
  for (const OperatorSplit& split : strategy.splits) *proto.add_splits() = ToProto(split);
  return proto;
}

Strategy FromProto(const v1::Strategy& proto) {
  Strategy strategy;
  strategy.kind = proto.kind() == v1::STRATEGY_KIND_SEQUENTIAL ? StrategyKind::kSequential
                                                               : StrategyKind::kGraph;
  strategy.mini_batch = proto.mini_batch();
  for (const v1::Stage& stage : proto.stages()) {
    strategy.stages.push_back({Ids<NodeId>(stage.nodes()),
                               Ids<NodeId>(stage.replicated_nodes()),
                               stage.micro_batch(),
                               Ids<DeviceId>(stage.devices()),
                               {stage.in_flight(), stage.k()},
                               stage.recompute()});
  }
  for (const v1::StageEdge& edge : proto.edges()) {
    strategy.edges.push_back({StageId(edge.from()), StageId(edge.to())});
  }
  for (const v1::DeviceOrder& order : proto.orders()) strategy.orders.push_back(FromProto(order));
  strategy.asynchronous = proto.asynchronous();
  strategy.vertical_sync = proto.vertical_sync();
  strategy.batch_statistics = FromProto(proto.batch_statistics());
  strategy.bucket_bytes = Bytes(proto.bucket_bytes());
  strategy.optimizer_sharding = FromProto(proto.optimizer_sharding());
  for (const v1::OperatorSplit& split : proto.splits()) strategy.splits.push_back(FromProto(split));
  return strategy;
}

v1::Program ToProto(const Program& program) {
  v1::Program proto;
  proto.set_mini_batch(program.mini_batch);
  proto.set_training(program.training);
  proto.set_asynchronous(program.asynchronous);
  for (const ProgramStage& stage : program.stages) {
    v1::ProgramStage* out = proto.add_stages();
    AddIds(stage.nodes, out->mutable_nodes());
    AddIds(stage.replicated, out->mutable_replicated_nodes());
    AddIds(stage.devices, out->mutable_devices());
    out->set_micro_batch(stage.micro_batch);
    out->set_has_backward(stage.has_backward);
    out->set_version_lag(stage.version_lag);
  }
  for (const Channel& channel : program.channels) *proto.add_channels() = ToProto(channel);
  for (const Reduction& reduction : program.reductions) {
    v1::Reduction* out = proto.add_reductions();
    AddIds(reduction.parameters, out->mutable_parameters());
    AddIds(reduction.devices, out->mutable_devices());
    out->set_bytes(reduction.bytes.count());
    AddIds(reduction.stages, out->mutable_stages());
    out->set_gradient_norm(reduction.gradient_norm);
    out->set_sharded(reduction.sharded);
    out->set_each_pass(reduction.each_pass);
  }
  for (const DeviceProgram& device : program.devices) {
    v1::DeviceProgram* out = proto.add_devices();
    out->set_device(device.device.value());
    out->set_resident_bytes(device.resident.count());
    AddSection(device.prologue, out->mutable_prologue());
    AddSection(device.body, out->mutable_body());
    AddSection(device.epilogue, out->mutable_epilogue());
  }
  return proto;
}

absl::StatusOr<Program> FromProto(const v1::Program& proto) {
  Program program;
  program.mini_batch = proto.mini_batch();
  program.training = proto.training();
  program.asynchronous = proto.asynchronous();
  for (const v1::ProgramStage& stage : proto.stages()) {
    program.stages.push_back({Ids<NodeId>(stage.nodes()), Ids<NodeId>(stage.replicated_nodes()),
                              Ids<DeviceId>(stage.devices()), stage.micro_batch(),
                              stage.has_backward(), stage.version_lag()});
  }
  for (const v1::Channel& channel : proto.channels())
    program.channels.push_back(FromProto(channel));
  for (const v1::Reduction& reduction : proto.reductions()) {
    program.reductions.push_back({Ids<ParameterId>(reduction.parameters()),
                                  Ids<DeviceId>(reduction.devices()), Bytes(reduction.bytes()),
                                  Ids<StageId>(reduction.stages()), reduction.gradient_norm(),
                                  reduction.sharded(), reduction.each_pass()});
  }
  for (const v1::DeviceProgram& device : proto.devices()) {
    DeviceProgram out;
    out.device = DeviceId(device.device());
    out.resident = Bytes(device.resident_bytes());
    ASSIGN_OR_RETURN(out.prologue, Section(device.prologue()));
    ASSIGN_OR_RETURN(out.body, Section(device.body()));
    ASSIGN_OR_RETURN(out.epilogue, Section(device.epilogue()));
    program.devices.push_back(std::move(out));
  }
  return program;
}

v1::TraceEvent ToProto(const TraceEvent& event) {
  v1::TraceEvent proto;
  proto.set_device(event.device.value());
  *proto.mutable_action() = ToProto(event.action);
  proto.set_step(event.step);
  proto.set_start_ns(event.start.count());
  proto.set_end_ns(event.end.count());
  return proto;
}

absl::StatusOr<TraceEvent> FromProto(const v1::TraceEvent& proto) {
  TraceEvent event;
  event.device = DeviceId(proto.device());
  ASSIGN_OR_RETURN(event.action, FromProto(proto.action()));
  event.step = proto.step();
  event.start = Nanos(proto.start_ns());
  event.end = Nanos(proto.end_ns());
  return event;
}

}  // namespace stagewright
