#include "common/wire/profile_proto.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {

v1::DeviceProfile ToProto(const ProfiledDevice& device, const MeasuredOperators& operators) {
  v1::DeviceProfile proto;
  proto.set_device_kind(device.kind);
  proto.set_software(device.software);
  for (const auto& [signature, measured] : operators) {
    v1::MeasuredOperator* entry = proto.add_operators();
    entry->set_signature(signature);
    entry->set_measured_on(measured.measured_on);
    entry->set_job(measured.job);
    for (const OperatorMeasurement& at : measured.samples) {
      v1::OperatorMeasurement* sample = entry->add_samples();
      sample->set_samples(at.samples);
      sample->set_forward_ns(at.forward.count());
      sample->set_backward_input_ns(at.backward_input.count());
      sample->set_backward_weight_ns(at.backward_weight.count());
      sample->set_kept_bytes(at.kept.count());
      sample->set_workspace_bytes(at.workspace.count());
    }
  }
  return proto;
}

absl::Status Merge(const v1::DeviceProfile& proto, OperatorProfile& profile) {
  OperatorProfile newer;
  MeasuredOperators& operators = newer.devices[{proto.device_kind(), proto.software()}];
  for (const v1::MeasuredOperator& entry : proto.operators()) {
    MeasuredOperator measured{entry.measured_on(), {}, entry.job()};
    for (const v1::OperatorMeasurement& at : entry.samples()) {
      OperatorMeasurement sample;
      sample.samples = at.samples();
      sample.forward = Nanos(at.forward_ns());
      sample.backward_input = Nanos(at.backward_input_ns());
      sample.backward_weight = Nanos(at.backward_weight_ns());
      // Halves near the end of the range would overflow; Check refuses them.
      sample.backward = Nanos(static_cast<int64_t>(static_cast<uint64_t>(at.backward_input_ns()) +
                                                   static_cast<uint64_t>(at.backward_weight_ns())));
      sample.kept = Bytes(at.kept_bytes());
      sample.workspace = Bytes(at.workspace_bytes());
      measured.samples.push_back(sample);
    }
    if (!operators.emplace(entry.signature(), std::move(measured)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("operator \"", entry.signature(), "\" is given twice"));
    }
  }
  RETURN_IF_ERROR(Check(newer));
  Merge(newer, profile);
  return absl::OkStatus();
}

}  // namespace stagewright
