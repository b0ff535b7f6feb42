// DAPPLE's profiles (AlibabaPAI/DAPPLE, planner/profiles/*.txt): grammar of profile_text.h, whose
// edges may start with a space here, and figures of nodes that are integers.
//
// The original scales everything but parameters by the global batch over the profiled batch. Here a
// sample is a sample of the global batch: a node's figures are those of `profile_batch` samples, so
// that any number of samples costs its share, and --mini-batch is the global batch. The original
// takes the profiled batch from its command line and its authors write it into the file's name
// ("gnmt-16-pbs-64.txt"), where it is found unless ImportOptions::profile_batch is given. No node
// is removed.
#include "planner_service/importers/dapple.h"

#include <charconv>

#include "planner_service/importers/profile_text.h"

namespace stagewright {
namespace {

// 64 of "gnmt-16-pbs-64.txt"; 0 if the name does not say.
int64_t BatchOfName(const std::string& file) {
  const std::string name = GraphNameOfFile(file);
  const std::string mark = "pbs-";
  const size_t at = name.rfind(mark);
  if (at == std::string::npos) return 0;
  int64_t batch = 0;
  const char* begin = name.data() + at + mark.size();
  const auto parsed = std::from_chars(begin, name.data() + name.size(), batch);
  return parsed.ec == std::errc() && batch <= int64_t{1} << 40 ? batch : 0;
}

}  // namespace

absl::StatusOr<ImportedProfile> ImportDapple(std::string_view text, const std::string& file,
                                             const ImportOptions& options) {
  RETURN_IF_ERROR(CheckImportOptions(options));
  ASSIGN_OR_RETURN(const ProfileText profile, ParseProfileText(text, file));
  std::vector<std::string> warnings;
  int64_t samples = options.profile_batch > 0 ? options.profile_batch : BatchOfName(file);
  if (samples <= 0) {
    samples = 1;
    warnings.push_back(absl::StrCat(
        file, ": the profiled batch is unknown (no \"pbs-N\" in the name); 1 is assumed"));
  }
  ASSIGN_OR_RETURN(Graph graph, MakeProfileGraph(profile, file, samples));
  return ImportedProfile{std::move(graph), std::nullopt, std::move(warnings)};
}

}  // namespace stagewright
