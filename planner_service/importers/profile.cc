#include "planner_service/importers/profile.h"

#include "common/base/text_file.h"
#include "planner_service/importers/dapple.h"
#include "planner_service/importers/pipedream.h"
#include "planner_service/importers/piper.h"

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
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return ImportProfile(format, text, path, options);
}

}  // namespace stagewright
