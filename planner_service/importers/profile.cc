#include "planner_service/importers/profile.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace stagewright {

absl::StatusOr<ProfileFormat> ProfileFormatByName(std::string_view name) {
  for (ProfileFormat format :
       {ProfileFormat::kPipeDream, ProfileFormat::kPiper, ProfileFormat::kDapple}) {
    if (name == ProfileFormatName(format)) return format;
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no profile format \"", std::string(name),
                                                 "\"; there are pipedream, piper, dapple"));
}

const char* ProfileFormatName(ProfileFormat format) {
  switch (format) {
    case ProfileFormat::kPipeDream:
      return "pipedream";
    case ProfileFormat::kPiper:
      return "piper";
    case ProfileFormat::kDapple:
      return "dapple";
  }
  return "unknown";
}

absl::StatusOr<ImportedProfile> ImportProfile(ProfileFormat format, std::string_view text,
                                              const std::string& file,
                                              const ImportOptions& options) {
  switch (format) {
    case ProfileFormat::kPipeDream:
      return ImportPipeDream(text, file, options);
    case ProfileFormat::kPiper:
      return ImportPiper(text, file, options);
    case ProfileFormat::kDapple:
      return ImportDapple(text, file, options);
  }
  return absl::InvalidArgumentError("unknown profile format");
}

absl::StatusOr<ImportedProfile> ImportProfileFile(ProfileFormat format, const std::string& path,
                                                  const ImportOptions& options) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad() || (text.fail() && !text.str().empty())) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  return ImportProfile(format, text.str(), path, options);
}

}  // namespace stagewright
