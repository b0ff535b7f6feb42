#include "common/data/sample_lengths.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/data/data_files.h"
#include "common/data/dataset.h"
#include "common/data/input_files.h"

namespace stagewright {
namespace {

// Samples [begin, end) of an input, in a file, and the graphs that they fit.
struct Part {
  int64_t begin = 0, end = 0;
  std::vector<bool> fits;
  std::string name;
};

bool TellsLengths(std::span<const Graph* const> graphs, InputId input) {
  return std::any_of(graphs.begin(), graphs.end(), [&](const Graph* graph) {
    return graph->input(input).meta.shape != graphs[0]->input(input).meta.shape;
  });
}

absl::StatusOr<std::vector<Part>> PartsOf(std::span<const Graph* const> graphs, InputId id,
                                          const std::string& path, InputFiles& opened) {
  const Input& input = graphs[0]->input(id);
  ASSIGN_OR_RETURN(const std::vector<std::string> files, DataFilesOf(path, input.name));
  std::vector<Part> parts;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const InputFiles::Found found, opened.Open(file, input));
    const int64_t begin = parts.empty() ? 0 : parts.back().end;
    Part part{begin, begin + found.samples, {}, NameInFile(file, input.name)};
    for (const Graph* graph : graphs)
      part.fits.push_back(HasShapeOf(found.tensor, graph->input(id).meta));
    if (std::find(part.fits.begin(), part.fits.end(), true) == part.fits.end()) {
      std::vector<std::string> wanted;
      for (const Graph* graph : graphs) wanted.push_back(Expected(graph->input(id).meta));
      std::sort(wanted.begin(), wanted.end());
      wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
      return absl::InvalidArgumentError(
          absl::StrCat(part.name, " is ", Describe(found.tensor.dtype, found.tensor.shape),
                       ", the graph wants ", absl::StrJoin(wanted, " or ")));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// Keeps of each part of `all` what fits those of another input, too.
absl::Status Intersect(const std::string& path, const std::vector<Part>& others,
                       std::vector<Part>& all) {
  if (others.back().end != all.back().end) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", others.back().name,
                                                   " ends at sample ", others.back().end, ", ",
                                                   all.back().name, " at ", all.back().end));
  }
  std::vector<Part> cut;
  for (size_t i = 0, j = 0; i < all.size() && j < others.size();) {
    Part part = all[i];
    part.begin = std::max(part.begin, others[j].begin);
    part.end = std::min(part.end, others[j].end);
    bool any = false;
    for (size_t g = 0; g < part.fits.size(); ++g) {
      part.fits[g] = part.fits[g] && others[j].fits[g];
      any = any || part.fits[g];
    }
    if (!any) {
      return absl::InvalidArgumentError(absl::StrCat(
          part.name, " and ", others[j].name, " are not of one length in sample ", part.begin));
    }
    i += all[i].end == part.end ? 1 : 0;
    j += others[j].end == part.end ? 1 : 0;
    cut.push_back(std::move(part));
  }
  all = std::move(cut);
  return absl::OkStatus();
}

}  // namespace

SampleLengths::SampleLengths(int64_t samples) : counts_{samples} {
  if (samples > 0) runs_.push_back({0, samples, 0});
}

SampleLengths::SampleLengths(std::vector<LengthRun> runs, int32_t lengths) : counts_(lengths) {
  for (const LengthRun& run : runs) {
    CHECK(run.begin == samples() && run.end > run.begin);
    counts_[run.length] += run.end - run.begin;
    if (!runs_.empty() && runs_.back().length == run.length) {
      runs_.back().end = run.end;
    } else {
      runs_.push_back(run);
    }
  }
}

absl::StatusOr<SampleLengths> SampleLengths::Read(std::span<const Graph* const> graphs,
                                                  const std::string& path) {
  if (graphs.size() == 1) {
    ASSIGN_OR_RETURN(const int64_t samples, Dataset::CountSamples(*graphs[0], path));
    return SampleLengths(samples);
  }
  InputFiles opened;
  std::vector<Part> all;
  absl::Status missing;
  for (size_t i = 0; i < graphs[0]->inputs().size(); ++i) {
    if (!TellsLengths(graphs, InputId(i))) continue;
    const auto parts = PartsOf(graphs, InputId(i), path, opened);
    if (absl::IsNotFound(parts.status())) {
      missing = parts.status();
      continue;
    }
    RETURN_IF_ERROR(parts.status());
    if (all.empty()) {
      all = *parts;
    } else {
      RETURN_IF_ERROR(Intersect(path, *parts, all));
    }
  }
  if (all.empty()) return missing;
  std::vector<LengthRun> runs;
  for (const Part& part : all) {
    if (std::count(part.fits.begin(), part.fits.end(), true) != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(part.name,
                       " may be of several lengths, and the inputs that tell which are "
                       "missing"));
    }
    const auto length = std::find(part.fits.begin(), part.fits.end(), true) - part.fits.begin();
    runs.push_back({part.begin, part.end, static_cast<int32_t>(length)});
  }
  return SampleLengths(std::move(runs), static_cast<int32_t>(graphs.size()));
}

int32_t SampleLengths::LengthOf(int64_t index) const {
  const auto after =
      std::upper_bound(runs_.begin(), runs_.end(), index,
                       [](int64_t i, const LengthRun& run) { return i < run.begin; });
  return (after - 1)->length;
}

bool SampleLengths::Has(int32_t length, int64_t begin, int64_t end) const {
  return std::any_of(runs_.begin(), runs_.end(), [&](const LengthRun& run) {
    return run.length == length && run.begin < end && run.end > begin;
  });
}

int64_t SampleLengths::IndexOf(int32_t length, int64_t i) const {
  for (const LengthRun& run : runs_) {
    if (run.length != length) continue;
    if (i < run.end - run.begin) return run.begin + i;
    i -= run.end - run.begin;
  }
  CHECK(false);
  return -1;
}

}  // namespace stagewright
