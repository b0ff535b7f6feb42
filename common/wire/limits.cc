#include "common/wire/limits.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/reflection.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/base/error_details.h"
#include "common/base/one_line.h"

namespace stagewright {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kIdBytes = 128;
constexpr size_t kNameBytes = 256;
constexpr size_t kLineBytes = 1024;
constexpr size_t kPathBytes = 4096;
constexpr size_t kToldBytes = size_t{64} << 10;
// What has no line of its own: as long as the message may be.
constexpr size_t kUnbounded = ~size_t{0};

struct Limit {
  size_t bytes = kPathBytes;  // A text or bytes.
  size_t items = 1 << 20;     // A list.
  bool told = false;          // To people, in lines of its own: may have line ends and tabs.
};

// Limit{} holds for texts and lists without a line here.
const absl::flat_hash_map<absl::string_view, Limit>& Table() {
  static const auto& table = *new absl::flat_hash_map<absl::string_view, Limit>{
      // Ids and names.
      {"stagewright.v1.SubmitJobRequest.request_id", {kIdBytes}},
      {"stagewright.v1.CancelJobRequest.request_id", {kIdBytes}},
      {"stagewright.v1.CancelJobRequest.name", {kIdBytes}},
      {"stagewright.v1.DeleteJobRequest.name", {kIdBytes}},
      {"stagewright.v1.GetJobRequest.name", {kIdBytes}},
      {"stagewright.v1.GetJobTraceRequest.name", {kIdBytes}},
      {"stagewright.v1.ListJobStepsRequest.name", {kIdBytes}},
      {"stagewright.v1.ListJobLogsRequest.name", {kIdBytes}},
      {"stagewright.v1.LogLines.job", {kIdBytes}},
      {"stagewright.v1.JobLogLine.worker", {kIdBytes}},
      {"stagewright.v1.LogField.key", {kIdBytes}},
      {"stagewright.v1.ListJobsRequest.page_token", {kIdBytes}},
      {"stagewright.v1.ListJobsRequest.display_name_contains", {kNameBytes}},
      {"stagewright.v1.ListJobsRequest.owner", {kIdBytes}},
      {"stagewright.v1.ListJobsRequest.tenant", {kIdBytes}},
      {"stagewright.v1.ReplanJobRequest.name", {kIdBytes}},
      {"stagewright.v1.SetWorkerAvailabilityRequest.name", {kIdBytes}},
      {"stagewright.v1.WatchJobRequest.name", {kIdBytes}},
      {"stagewright.v1.JobSpec.display_name", {kNameBytes}},
      {"stagewright.v1.JobSpec.planner", {kIdBytes}},
      {"stagewright.v1.PlanRequest.planner", {kIdBytes}},
      {"stagewright.v1.Graph.name", {kNameBytes}},
      {"stagewright.v1.Graph.producer", {kNameBytes}},
      {"stagewright.v1.Node.target", {kNameBytes}},
      {"stagewright.v1.NamedArgument.name", {kIdBytes}},
      {"stagewright.v1.Argument.text", {kNameBytes}},
      {"stagewright.v1.Argument.memory_format", {kIdBytes}},
      {"stagewright.v1.Register.worker", {kIdBytes}},
      {"stagewright.v1.Register.version", {kIdBytes}},
      {"stagewright.v1.Register.host_address", {kNameBytes}},
      {"stagewright.v1.Register.software", {kNameBytes}},
      {"stagewright.v1.GpuMachine.driver_version", {kIdBytes}},
      {"stagewright.v1.Gpu.name", {kNameBytes}},
      {"stagewright.v1.Gpu.uuid", {kIdBytes}},
      {"stagewright.v1.Device.name", {kNameBytes}},
      {"stagewright.v1.DeviceKind.name", {kNameBytes}},
      // Lists.
      {"stagewright.v1.Register.devices", {kUnbounded, 1024}},
      {"stagewright.v1.Register.kinds", {kUnbounded, 1024}},
      {"stagewright.v1.Register.running", {kUnbounded, 4096}},
      {"stagewright.v1.GpuMachine.gpus", {kUnbounded, 1024}},
      {"stagewright.v1.Gpu.slowdowns", {kUnbounded, 64}},
      {"stagewright.v1.Gpu.no_peer_access", {kUnbounded, 1024}},
      {"stagewright.v1.TensorMeta.shape", {kUnbounded, 64}},
      {"stagewright.v1.Parameter.shape", {kUnbounded, 64}},
      {"stagewright.v1.Parameter.aliases", {kPathBytes, 1024}},
      {"stagewright.v1.Node.args", {kUnbounded, 4096}},
      {"stagewright.v1.Node.kwargs", {kUnbounded, 256}},
      {"stagewright.v1.Node.outputs", {kUnbounded, 65536}},
      {"stagewright.v1.Node.after", {kUnbounded, 1 << 20}},
      {"stagewright.v1.Prepared.warnings", {kToldBytes, 1024, true}},
      {"stagewright.v1.Prepared.addresses", {kUnbounded, 1024}},
      {"stagewright.v1.Finished.shards", {kPathBytes, 1024}},
      {"stagewright.v1.LogLines.lines", {kUnbounded, 256}},
      {"stagewright.v1.JobLogLine.fields", {kUnbounded, 32}},
      // What people or programs write in lines of their own.
      {"stagewright.v1.PlanOptions.manual", {size_t{16} << 20, 1, true}},
      {"stagewright.v1.JobSpec.data_path", {kToldBytes}},
      {"stagewright.v1.JobSpec.evaluation_data_path", {kToldBytes}},
      {"stagewright.v1.MeasuredOperator.signature", {kToldBytes, 1, true}},
      // What workers tell people.
      {"stagewright.v1.Failed.message", {kToldBytes, 1, true}},
      {"stagewright.v1.JobLogLine.message", {kLineBytes, 1, true}},
      {"stagewright.v1.LogField.value", {kLineBytes, 1, true}},
      {"stagewright.v1.GpuMachine.trouble", {kToldBytes, 1, true}},
      {"stagewright.v1.PathsChecked.message", {kToldBytes, 1, true}},
      {"stagewright.v1.ShardWritten.error", {kToldBytes, 1, true}},
      {"stagewright.v1.CheckpointWritten.error", {kToldBytes, 1, true}},
      {"stagewright.v1.OperatorsProfiled.message", {kToldBytes, 1, true}},
      {"stagewright.v1.UnmeasuredOperator.reason", {kToldBytes, 1, true}},
      {"stagewright.v1.LinksProbed.error", {kToldBytes, 1, true}},
      {"stagewright.v1.LinkFigure.failure", {kToldBytes, 1, true}},
      {"stagewright.v1.CrowdFigure.failure", {kToldBytes, 1, true}},
      // Bytes.
      {"stagewright.v1.Parameter.data", {kUnbounded}},
      {"stagewright.v1.DeviceAddress.address", {kToldBytes}},
      {"stagewright.v1.ProbedDevice.address", {kToldBytes}},
  };
  return table;
}

Limit LimitOf(const FieldDescriptor& field) {
  const auto found = Table().find(field.full_name());
  return found == Table().end() ? Limit() : found->second;
}

bool HasControlCharacter(absl::string_view text, bool told) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (told && (text[i] == '\n' || text[i] == '\t' || text[i] == '\r')) continue;
    if (ControlCharacterAt(text, i) > 0) return true;
  }
  return false;
}

absl::Status CheckLength(absl::string_view text, const Limit& limit) {
  if (text.size() <= limit.bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(": it has ", text.size(), " bytes, at most ", limit.bytes, " are taken"));
}

// Errors begin with what comes behind the name of `message`: ".name: ..." or ": ...".
absl::Status CheckFields(const Message& message);

// Item `index` of a list, or the field itself if that is -1.
absl::Status CheckValue(const Message& message, const FieldDescriptor& field, int index,
                        const Limit& limit) {
  const Reflection& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return CheckFields(index < 0 ? reflection.GetMessage(message, &field)
                                 : reflection.GetRepeatedMessage(message, &field, index));
  }
  std::string scratch;
  const std::string& text =
      index < 0 ? reflection.GetStringReference(message, &field, &scratch)
                : reflection.GetRepeatedStringReference(message, &field, index, &scratch);
  RETURN_IF_ERROR(CheckLength(text, limit));
  if (field.type() == FieldDescriptor::TYPE_BYTES || !HasControlCharacter(text, limit.told))
    return absl::OkStatus();
  return absl::InvalidArgumentError(": it has control characters");
}

absl::Status Behind(const absl::Status& status, absl::string_view name) {
  return absl::Status(status.code(), absl::StrCat(".", name, status.message()));
}

absl::Status CheckFields(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool numbers = field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE &&
                         field->cpp_type() != FieldDescriptor::CPPTYPE_STRING;
    if (numbers && !field->is_repeated()) continue;
    const Limit limit = LimitOf(*field);
    if (!field->is_repeated()) {
      const absl::Status status = CheckValue(message, *field, -1, limit);
      if (!status.ok()) return Behind(status, field->name());
      continue;
    }
    const int items = reflection.FieldSize(message, field);
    if (static_cast<size_t>(items) > limit.items) {
      return absl::InvalidArgumentError(absl::StrCat(".", field->name(), ": there are ", items,
                                                     ", at most ", limit.items, " are taken"));
    }
    for (int i = 0; i < items && !numbers; ++i) {
      const absl::Status status = CheckValue(message, *field, i, limit);
      if (!status.ok()) return Behind(status, absl::StrCat(field->name(), "[", i, "]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLimits(const Message& message) {
  const absl::Status status = CheckFields(message);
  if (status.ok()) return status;
  const absl::string_view told = status.message().substr(1);  // Without the first dot.
  return WithField(absl::Status(status.code(), told), told.substr(0, told.find(':')));
}

}  // namespace stagewright
