#include "clients/cli/jobs/list_command.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/view/job_view.h"
#include "common/wire/job_state.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);
constexpr int kPageSize = 200;

struct ListFlags {
  int limit = 100;
  std::vector<std::string> states;
  std::string name, owner, tenant;
};

std::vector<std::string> StateNames() {
  std::vector<std::string> names;
  for (int state = v1::JOB_STATE_UNSPECIFIED + 1; state <= v1::JobState_MAX; ++state)
    names.push_back(JobStateName(static_cast<v1::JobState>(state)));
  return names;
}

v1::JobState StateOf(const std::string& name) {
  const std::vector<std::string> names = StateNames();
  return static_cast<v1::JobState>(1 + std::find(names.begin(), names.end(), name) - names.begin());
}

// Pages until there are enough; `next_page_token` says whether there are more.
absl::StatusOr<v1::ListJobsResponse> ReadPages(Connection& connection, const ListFlags& flags) {
  v1::ListJobsRequest request;
  for (const std::string& state : flags.states) request.add_states(StateOf(state));
  request.set_display_name_contains(flags.name);
  request.set_owner(flags.owner);
  request.set_tenant(flags.tenant);
  const int limit = flags.limit == 0 ? std::numeric_limits<int>::max() : flags.limit;
  v1::ListJobsResponse all;
  do {
    request.set_page_size(std::min(kPageSize, limit - all.jobs_size()));
    request.set_page_token(all.next_page_token());
    v1::ListJobsResponse page;
    RETURN_IF_ERROR(connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
      return connection.jobs().ListJobs(context, request, &page);
    }));
    all.set_next_page_token(page.next_page_token());
    all.mutable_jobs()->MergeFrom(page.jobs());
  } while (!all.next_page_token().empty() && all.jobs_size() < limit);
  return all;
}

int RunList(const ListFlags& flags, const Globals& globals) {
  Connection connection(globals);
  const auto listed = ReadPages(connection, flags);
  if (!listed.ok()) return Report(listed.status());
  const bool more = !listed->next_page_token().empty();
  if (globals.json()) {
    nlohmann::json list = nlohmann::json::array();
    for (const v1::Job& job : listed->jobs()) list.push_back(JobJson(job));
    nlohmann::json json = {{"jobs", std::move(list)}};
    if (more) json["more"] = true;
    std::cout << json.dump(2) << std::endl;
  } else {
    std::cout << JobsText(*listed);
    if (more)
      std::cout << "(the newest " << listed->jobs_size() << "; --limit 0 shows all)" << std::endl;
  }
  return kSuccess;
}

void AddListFlags(CLI::App& command, ListFlags& flags, Globals& globals) {
  command.add_option("--limit", flags.limit, "most jobs to list, the newest; 0: all")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->capture_default_str();
  command.add_option("--state", flags.states, "only jobs in this state; repeat it for several")
      ->check(CLI::IsMember(StateNames()))
      ->expected(1)
      ->take_all();
  command.add_option("--name", flags.name, "only jobs whose name has this in it");
  command.add_option("--owner", flags.owner, "only jobs of this user");
  command.add_option("--tenant", flags.tenant, "only jobs of this tenant's users");
  AddOutputOption(command, globals);
}

}  // namespace

void AddListCommand(CLI::App& jobs, Globals& globals) {
  auto flags = std::make_shared<ListFlags>();
  AddListFlags(jobs, *flags, globals);
  CLI::App* list = jobs.add_subcommand("list", "the same");
  AddListFlags(*list, *flags, globals);
  list->callback([flags, &globals] { globals.exit_code = RunList(*flags, globals); });
  jobs.callback([flags, &jobs, &globals] {
    if (jobs.get_subcommands().empty()) globals.exit_code = RunList(*flags, globals);
  });
}

}  // namespace stagewright::cli
