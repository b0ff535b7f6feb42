#include "clients/cli/jobs/topology_command.h"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/files/write_file.h"
#include "clients/cli/view/table.h"
#include "common/clock/steady_now.h"
#include "common/config/number_checks.h"
#include "common/topology/cluster_json.h"
#include "common/wire/topology_proto.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);
constexpr absl::Duration kBetweenCalls = absl::Milliseconds(200);

struct Options {
  std::string out;
  double time_limit_seconds = 60;
};

// Asks until nothing is left to measure, or the time is over.
absl::StatusOr<v1::MeasureTopologyResponse> Measure(const Options& options,
                                                    const Globals& globals) {
  Connection connection(globals);
  const absl::Time deadline = SteadyNow() + absl::Seconds(options.time_limit_seconds);
  v1::MeasureTopologyRequest request;
  request.set_again(true);
  while (true) {
    v1::MeasureTopologyResponse response;
    RETURN_IF_ERROR(connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
      return connection.topology().MeasureTopology(context, request, &response);
    }));
    if (response.pending() == 0 || SteadyNow() >= deadline) return response;
    request.set_again(false);
    absl::SleepFor(kBetweenCalls);
  }
}

std::string Rate(double bytes_per_second) {
  return absl::StrFormat("%.3g GB/s", bytes_per_second / 1e9);
}

std::string Text(const v1::MeasureTopologyResponse& response) {
  Table links({"from", "to", ">latency", ">bandwidth", ""});
  for (const v1::LinkFigure& link : response.measured().links()) {
    if (link.failure().empty()) {
      links.Add({link.from(), link.to(), FormatDuration(Nanos(link.latency_ns())),
                 Rate(link.bytes_per_second()), ""});
    } else {
      links.Add({link.from(), link.to(), "", "", link.failure()});
    }
  }
  Table machines({"machine", ">devices at once", ">product", ">copy", ">message", ">together",
                  ">message's work", ">hop of a sum", ""});
  for (const v1::CrowdFigure& crowd : response.measured().crowds()) {
    const bool alone = crowd.devices() == 1;
    const bool failed = !crowd.failure().empty();
    machines.Add({crowd.host_address(), absl::StrCat(crowd.devices()),
                  failed ? "" : FormatDuration(Nanos(crowd.product_ns())),
                  failed ? "" : FormatDuration(Nanos(crowd.copy_ns())),
                  failed || alone ? "" : FormatDuration(Nanos(crowd.latency_ns())),
                  failed || alone ? "" : Rate(crowd.bytes_per_second()),
                  failed || alone ? "" : FormatDuration(Nanos(crowd.message_ns())),
                  failed || alone ? "" : FormatDuration(Nanos(crowd.reduction_ns())),
                  crowd.failure()});
  }
  std::string text;
  if (response.measured().links_size() > 0) text = links.ToString() + "\n";
  if (response.measured().crowds_size() > 0) text += machines.ToString() + "\n";
  return text + response.summary() + "\n";
}

nlohmann::json Json(const v1::MeasureTopologyResponse& response) {
  nlohmann::json links = nlohmann::json::array(), machines = nlohmann::json::array();
  for (const v1::LinkFigure& link : response.measured().links()) {
    nlohmann::json item = {{"from", link.from()}, {"to", link.to()}};
    if (link.failure().empty()) {
      item["latency_seconds"] = ToSeconds(Nanos(link.latency_ns()));
      item["bytes_per_second"] = link.bytes_per_second();
    } else {
      item["failure"] = link.failure();
    }
    links.push_back(std::move(item));
  }
  for (const v1::CrowdFigure& crowd : response.measured().crowds()) {
    nlohmann::json item = {{"host", crowd.host_address()},
                           {"devices", crowd.devices()},
                           {"threads_per_device", crowd.threads_per_device()}};
    if (crowd.failure().empty()) {
      item["product_seconds"] = ToSeconds(Nanos(crowd.product_ns()));
      item["copy_seconds"] = ToSeconds(Nanos(crowd.copy_ns()));
      item["latency_seconds"] = ToSeconds(Nanos(crowd.latency_ns()));
      item["bytes_per_second"] = crowd.bytes_per_second();
      item["message_seconds"] = ToSeconds(Nanos(crowd.message_ns()));
      item["message_bytes_per_second"] = crowd.message_bytes_per_second();
      item["reduction_seconds"] = ToSeconds(Nanos(crowd.reduction_ns()));
    } else {
      item["failure"] = crowd.failure();
    }
    machines.push_back(std::move(item));
  }
  return {{"summary", response.summary()},
          {"pending", response.pending()},
          {"links", std::move(links)},
          {"machines", std::move(machines)}};
}

int RunMeasure(const Options& options, const Globals& globals) {
  const auto response = Measure(options, globals);
  if (!response.ok()) return Report(response.status());
  if (!options.out.empty()) {
    const auto cluster = FromProto(response->cluster());
    if (!cluster.ok()) return Report(cluster.status());
    const absl::Status written = WriteFile(options.out, ClusterToJson(*cluster));
    if (!written.ok()) return Report(written);
  }
  std::cout << (globals.json() ? Json(*response).dump(2) + "\n" : Text(*response));
  if (response->pending() == 0) return kSuccess;
  return Report(absl::DeadlineExceededError(absl::StrCat(
      response->pending(), " probes are left to do: they wait for machines without a job")));
}

}  // namespace

void AddTopologyCommand(CLI::App& app, Globals& globals) {
  CLI::App* topology =
      app.add_subcommand("topology", "devices and links of the registered workers");
  topology->require_subcommand(1);
  auto options = std::make_shared<Options>();
  CLI::App* measure = topology->add_subcommand("measure", "measure the links between workers anew");
  measure->add_option("--out", options->out, "cluster file to write, for plan --cluster");
  measure->add_option("--time-limit", options->time_limit_seconds, "seconds to wait for it")
      ->check(Seconds())
      ->capture_default_str();
  AddOutputOption(*measure, globals);
  measure->callback([options, &globals] { globals.exit_code = RunMeasure(*options, globals); });
}

}  // namespace stagewright::cli
