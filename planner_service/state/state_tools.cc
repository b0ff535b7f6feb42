#include "planner_service/state/state_tools.h"

#include <cstdio>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "planner_service/jobs/job_store.h"
#include "planner_service/store/set_aside.h"
#include "planner_service/store/sqlite_file.h"
#include "planner_service/store/sqlite_salvage.h"
#include "planner_service/store/sqlite_store.h"

namespace stagewright {
namespace {

using Lines = std::vector<std::string>;

// An entry, and the job that it is about.
std::string Described(const std::string& key) {
  const std::string job = JobOfEntry(key);
  const std::string entry = absl::StrCat("entry ", absl::CHexEscape(key));
  return job.empty() ? entry : absl::StrCat(job, " (", entry, ")");
}

// A name beside the state's that says when it was moved there.
std::string NameAside(const std::string& state, absl::string_view why) {
  return absl::StrCat(state, ".", why, "-",
                      absl::FormatTime("%Y%m%dT%H%M%E3SZ", absl::Now(), absl::UTCTimeZone()));
}

absl::Status Move(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    return absl::FailedPreconditionError(absl::StrCat("cannot rename ", from, " to ", to));
  for (const char* log : {"-wal", "-shm"})  // They belong to the file.
    std::rename(absl::StrCat(from, log).c_str(), absl::StrCat(to, log).c_str());
  return absl::OkStatus();
}

std::string Contents(const StateReport& report) {
  return report.jobs == 0 ? std::string("no jobs")
                          : absl::StrCat(report.jobs, " jobs up to ", report.newest_job);
}

// Why it is refused.
absl::Status WouldReplace(const std::string& state, const std::string& copy,
                          const StateReport& copied) {
  ASSIGN_OR_RETURN(const StateReport present, CheckState(state));
  return absl::FailedPreconditionError(absl::StrCat(
      state, " has other contents (", Contents(present), ") than ", copy, " (", Contents(copied),
      "): --overwrite moves it aside and puts the copy in its place"));
}

}  // namespace

absl::StatusOr<StateReport> CheckState(const std::string& state) {
  ASSIGN_OR_RETURN(const SqliteDatabase database, OpenStoreFile(state, OpenFor::kReading));
  StateReport report;
  const auto pages = DamagedPages(database);
  report.pages = pages.ok() ? *pages : Lines{std::string(pages.status().message())};
  if (!report.pages.empty()) return report;
  ASSIGN_OR_RETURN(const Lines changed, DamagedEntries(database));
  for (const std::string& key : changed)
    report.damaged.push_back(absl::StrCat(Described(key), ": not as it was written"));
  ASSIGN_OR_RETURN(const Lines unreadable, UnreadableEntries(database, IsReadableEntry));
  for (const std::string& key : unreadable)
    report.damaged.push_back(absl::StrCat(Described(key), ": not what it should be"));
  ASSIGN_OR_RETURN(const Lines keys, database.Texts("SELECT key FROM entries ORDER BY key"));
  const std::string aside = SetAsideKey("");
  for (const std::string& key : keys) {
    if (absl::StartsWith(key, aside))
      report.set_aside.push_back(Described(key.substr(aside.size())));
    if (!absl::StartsWith(key, "jobs/")) continue;
    ++report.jobs;
    report.newest_job = JobOfEntry(key);
  }
  return report;
}

absl::Status BackUpState(const std::string& state, const std::string& copy) {
  return CopyStoreFile(state, copy);
}

absl::StatusOr<Lines> RestoreState(const std::string& copy, const std::string& state,
                                   bool overwrite) {
  ASSIGN_OR_RETURN(const StateReport copied, CheckState(copy));
  if (!copied.pages.empty() || !copied.damaged.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(copy, " is damaged itself: `stagewright-planner state check` says where"));
  }
  ASSIGN_OR_RETURN(const StoreLock lock, StoreLock::Take(state));
  Lines done;
  if (std::FILE* present = std::fopen(state.c_str(), "r")) {
    std::fclose(present);
    const auto alike = AreAlike(state, copy);
    if (alike.ok() && *alike) return Lines{absl::StrCat(state, " has these contents already")};
    if (!overwrite) return WouldReplace(state, copy, copied);
    const std::string aside = NameAside(state, "replaced");
    RETURN_IF_ERROR(Move(state, aside));
    done.push_back(absl::StrCat("the state before is ", aside));
  }
  RETURN_IF_ERROR(CopyStoreFile(copy, state));
  done.push_back(absl::StrCat(state, " has ", Contents(copied)));
  return done;
}

absl::StatusOr<Lines> RepairState(const std::string& state, bool drop) {
  Lines done;
  {
    ASSIGN_OR_RETURN(const StoreLock lock, StoreLock::Take(state));
    const auto report = CheckState(state);
    if (!report.ok() || !report->pages.empty()) {
      const std::string saved = NameAside(state, "saved");
      ASSIGN_OR_RETURN(const int entries, SalvageStoreFile(state, saved));
      const std::string aside = NameAside(state, "damaged");
      RETURN_IF_ERROR(Move(state, aside));
      RETURN_IF_ERROR(Move(saved, state));
      done.push_back(absl::StrCat("the file was damaged: ", entries,
                                  " entries could be read and are kept; the file before is ",
                                  aside));
    }
  }
  ASSIGN_OR_RETURN(OpenedStore opened, OpenSqliteStore(state));  // Sets aside what has changed.
  ASSIGN_OR_RETURN(const auto entries, opened.store->Scan(""));
  for (const auto& [key, value] : entries) {
    if (!IsReadableEntry(key, value)) RETURN_IF_ERROR(SetAside(*opened.store, key));
  }
  ASSIGN_OR_RETURN(const Lines aside, KeysSetAside(*opened.store));
  for (const std::string& key : aside)
    done.push_back(absl::StrCat(Described(key), drop ? ": dropped" : ": set aside"));
  if (drop) RETURN_IF_ERROR(DropSetAside(*opened.store).status());
  if (done.empty()) done.push_back(absl::StrCat(state, " needs no repair"));
  return done;
}

}  // namespace stagewright
