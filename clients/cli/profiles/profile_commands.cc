#include "clients/cli/profiles/profile_commands.h"

#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/files/write_file.h"
#include "clients/cli/flags/graph_source.h"
#include "clients/cli/flags/named_option.h"
#include "clients/cli/view/table.h"
#include "common/base/text_file.h"
#include "common/base/units.h"
#include "common/config/number_checks.h"
#include "common/training/precision.h"
#include "common/wire/profile_proto.h"
#include "common/wire/training_proto.h"
#include "nlohmann/json.hpp"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);

struct ProfileFlags {
  GraphSource source;
  std::string device;
  int64_t samples = 16;
  Precision precision = Precision::kGraph;
  double time_limit_seconds = 1800;
};

// What the largest micro-batch takes, by operator.
std::string ProfileText(const v1::ProfileGraphResponse& response) {
  Table table({"operator", ">samples", ">forward", ">backward", ">kept", ">workspace"});
  for (const v1::MeasuredOperator& measured : response.profile().operators()) {
    const v1::OperatorMeasurement& last = *measured.samples().rbegin();
    table.Add({measured.signature(), absl::StrCat(last.samples()),
               FormatDuration(Nanos(last.forward_ns())),
               FormatDuration(Nanos(last.backward_input_ns() + last.backward_weight_ns())),
               FormatBytes(Bytes(last.kept_bytes())), FormatBytes(Bytes(last.workspace_bytes()))});
  }
  std::string text =
      absl::StrCat(table.ToString(), response.profile().operators_size(), " operators measured on ",
                   response.device(), " (", response.profile().device_kind(), "; ",
                   response.profile().software(), ")\n");
  for (const v1::UnmeasuredOperator& left : response.unmeasured()) {
    absl::StrAppend(&text, "warning: ", left.node(),
                    " was not measured, so it costs what the "
                    "analytic model says: ",
                    left.reason(), "\n");
  }
  return text;
}

nlohmann::json ProfileJson(const v1::ProfileGraphResponse& response,
                           const OperatorProfile& profile) {
  nlohmann::json unmeasured = nlohmann::json::array();
  for (const v1::UnmeasuredOperator& left : response.unmeasured())
    unmeasured.push_back({{"node", left.node()}, {"reason", left.reason()}});
  return {{"device", response.device()},
          {"profile", nlohmann::json::parse(OperatorProfileToJson(profile))},
          {"unmeasured", std::move(unmeasured)}};
}

int RunProfile(const ProfileFlags& flags, const Globals& globals) {
  auto source = LoadSource(flags.source);
  if (!source.ok()) return Report(source.status());
  v1::ProfileGraphRequest request;
  *request.mutable_graph() = std::move(source->graph);
  request.set_device(flags.device);
  request.set_precision(ToProto(flags.precision));
  request.set_most_samples(flags.samples);
  Connection connection(globals);
  v1::ProfileGraphResponse response;
  absl::Status status =
      connection.Call(absl::Seconds(flags.time_limit_seconds), [&](grpc::ClientContext* context) {
        return connection.profiles().ProfileGraph(context, request, &response);
      });
  if (!status.ok()) return Report(status);
  OperatorProfile profile;
  if (status = Merge(response.profile(), profile); !status.ok()) return Report(status);
  if (globals.json()) {
    std::cout << ProfileJson(response, profile).dump(2) << std::endl;
  } else {
    std::cout << ProfileText(response);
  }
  return kSuccess;
}

int RunList(const Globals& globals) {
  Connection connection(globals);
  v1::ListProfilesResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.profiles().ListProfiles(context, {}, &response);
  });
  if (!status.ok()) return Report(status);
  nlohmann::json list = nlohmann::json::array();
  Table table({"kind", "software", ">operators", "first measured", "last measured"});
  for (const v1::ProfileSummary& summary : response.profiles()) {
    list.push_back({{"device_kind", summary.device_kind()},
                    {"software", summary.software()},
                    {"operators", summary.operators()},
                    {"first_measured_on", summary.first_measured_on()},
                    {"last_measured_on", summary.last_measured_on()}});
    table.Add({summary.device_kind(), summary.software(), absl::StrCat(summary.operators()),
               summary.first_measured_on(), summary.last_measured_on()});
  }
  if (globals.json()) {
    std::cout << nlohmann::json({{"profiles", std::move(list)}}).dump(2) << std::endl;
  } else {
    std::cout << table.ToString();
  }
  return kSuccess;
}

int RunExport(const std::string& path, const Globals& globals) {
  Connection connection(globals);
  v1::ExportProfilesResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.profiles().ExportProfiles(context, {}, &response);
  });
  OperatorProfile profile;
  for (const v1::DeviceProfile& device : response.profiles()) {
    if (status.ok()) status = Merge(device, profile);
  }
  if (status.ok()) status = WriteFile(path, OperatorProfileToJson(profile));
  if (!status.ok()) return Report(status);
  std::cout << path << std::endl;
  return kSuccess;
}

int RunImport(const std::string& path, const Globals& globals) {
  const auto text = ReadTextFile(path);
  if (!text.ok()) return Report(text.status());
  const auto profile = ParseOperatorProfile(*text, path);
  if (!profile.ok()) return Report(profile.status());
  v1::ImportProfilesRequest request;
  for (const auto& [device, operators] : profile->devices)
    *request.add_profiles() = ToProto(device, operators);
  Connection connection(globals);
  v1::ImportProfilesResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.profiles().ImportProfiles(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  std::cout << response.operators() << " operators imported" << std::endl;
  return kSuccess;
}

}  // namespace

void AddProfileCommands(CLI::App& app, Globals& globals) {
  auto flags = std::make_shared<ProfileFlags>();
  CLI::App* profile = app.add_subcommand("profile", "measure a graph's operators on a worker");
  AddGraphSource(*profile, flags->source);
  profile->get_option("graph")->required();
  profile->add_option("--device", flags->device,
                      "WORKER/DEVICE, or WORKER for any free device of it (default: any free one)");
  profile->add_option("--samples", flags->samples, "each power of two up to it is measured")
      ->check(Positive())
      ->capture_default_str();
  AddNamedOption(*profile, "--precision", flags->precision, kPrecisionNames,
                 "in which operators compute: graph (default: its types), bf16, fp16");
  profile->add_option("--time-limit", flags->time_limit_seconds, "seconds")
      ->check(Seconds())
      ->capture_default_str();
  AddOutputOption(*profile, globals);
  profile->callback([flags, &globals] { globals.exit_code = RunProfile(*flags, globals); });

  CLI::App* profiles = app.add_subcommand("profiles", "list what is known of operators' costs");
  AddOutputOption(*profiles, globals);
  auto file = std::make_shared<std::string>();
  CLI::App* save = profiles->add_subcommand("export", "write all measurements to a file");
  save->add_option("file", *file, "JSON")->required();
  save->callback([file, &globals] { globals.exit_code = RunExport(*file, globals); });
  CLI::App* load = profiles->add_subcommand("import", "add the measurements of a file");
  load->add_option("file", *file, "JSON")->required();
  load->callback([file, &globals] { globals.exit_code = RunImport(*file, globals); });
  profiles->callback([profiles, &globals] {
    if (profiles->get_subcommands().empty()) globals.exit_code = RunList(globals);
  });
}

}  // namespace stagewright::cli
