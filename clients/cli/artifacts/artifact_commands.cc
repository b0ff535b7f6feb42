#include "clients/cli/artifacts/artifact_commands.h"

#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/files/write_file.h"
#include "clients/cli/view/table.h"
#include "common/artifacts/artifacts.h"
#include "common/artifacts/transfer.h"
#include "common/base/units.h"
#include "nlohmann/json.hpp"

namespace stagewright::cli {
namespace {

absl::StatusOr<Artifacts> StoreOf(const Globals& globals) {
  if (globals.artifacts.empty()) {
    return absl::FailedPreconditionError(
        "there is no store of artifacts: --artifacts, or STAGEWRIGHT_ARTIFACTS, names it");
  }
  return Artifacts::Open({globals.artifacts, "", /*cache_mib=*/0});
}

absl::Status Put(const Globals& globals, const std::string& file) {
  ASSIGN_OR_RETURN(const Artifacts artifacts, StoreOf(globals));
  ASSIGN_OR_RETURN(const std::string name, PutArtifact(artifacts.store(), file));
  std::cout << name << std::endl;
  return absl::OkStatus();
}

absl::Status Remove(const Globals& globals, const std::string& name) {
  ASSIGN_OR_RETURN(const Artifacts artifacts, StoreOf(globals));
  return RemoveArtifact(artifacts.store(), name);
}

absl::Status List(const Globals& globals) {
  ASSIGN_OR_RETURN(const Artifacts artifacts, StoreOf(globals));
  ASSIGN_OR_RETURN(const std::vector<StoredArtifact> found, artifacts.List());
  nlohmann::json list = nlohmann::json::array();
  Table table({"artifact", ">size"});
  for (const StoredArtifact& artifact : found) {
    nlohmann::json& json = list.emplace_back(nlohmann::json{{"name", artifact.name}});
    if (artifact.size.has_value()) {
      json["size_bytes"] = *artifact.size;
      table.Add({artifact.name, FormatBytes(Bytes(static_cast<int64_t>(*artifact.size)))});
    } else {
      json["damaged"] = true;
      table.Add({artifact.name, "damaged"});
    }
  }
  if (globals.json()) {
    std::cout << nlohmann::json({{"artifacts", std::move(list)}}).dump(2) << std::endl;
  } else {
    std::cout << table.ToString();
  }
  return absl::OkStatus();
}

using UseArtifact = std::function<absl::Status(const Artifact& artifact)>;

absl::Status Use(const Globals& globals, const std::string& name, const UseArtifact& use) {
  ASSIGN_OR_RETURN(const Artifacts artifacts, StoreOf(globals));
  ASSIGN_OR_RETURN(const Artifact artifact, artifacts.Find(name));
  return use(artifact);
}

absl::Status Check(const Artifact& artifact) {
  RETURN_IF_ERROR(CheckArtifact(artifact));
  std::cout << "whole: " << FormatBytes(Bytes(static_cast<int64_t>(artifact.size()))) << " in "
            << artifact.manifest().chunks.size() << " chunks" << std::endl;
  return absl::OkStatus();
}

absl::Status Get(const Artifact& artifact, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string file, FileToReplace(path));
  return GetArtifact(artifact, file);
}

int CodeOf(const absl::Status& status) { return status.ok() ? kSuccess : Report(status); }

}  // namespace

void AddArtifactCommands(CLI::App& app, Globals& globals) {
  CLI::App* artifacts =
      app.add_subcommand("artifacts", "files that jobs name by what is in them, in --artifacts");
  artifacts->require_subcommand(1);
  struct Arguments {
    std::string name, file;
  };
  const auto given = std::make_shared<Arguments>();

  CLI::App* put = artifacts->add_subcommand("put", "put a file there, if it is not; says its name");
  put->add_option("file", given->file)->required();
  put->callback([given, &globals] { globals.exit_code = CodeOf(Put(globals, given->file)); });

  CLI::App* list =
      artifacts->add_subcommand("list", "list all with their sizes, and which are damaged");
  AddOutputOption(*list, globals);
  list->callback([&globals] { globals.exit_code = CodeOf(List(globals)); });

  using Command = std::function<absl::Status(const std::string& name)>;
  const auto add = [&](const char* command, const char* help, const Command& run) {
    CLI::App* added = artifacts->add_subcommand(command, help);
    added->add_option("name", given->name, "sha256:...")->required();
    added->callback([given, run, &globals] { globals.exit_code = CodeOf(run(given->name)); });
    return added;
  };
  add("get", "write one to a file",
      [given, &globals](const std::string& name) {
        return Use(globals, name,
                   [&](const Artifact& artifact) { return Get(artifact, given->file); });
      })
      ->add_option("file", given->file)
      ->required();
  add("check", "read all of one and hold it to its name",
      [&globals](const std::string& name) { return Use(globals, name, Check); });
  add("rm", "remove one, which running jobs may still want to read",
      [&globals](const std::string& name) { return Remove(globals, name); });
}

}  // namespace stagewright::cli
