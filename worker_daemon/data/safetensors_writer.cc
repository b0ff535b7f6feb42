#include "worker_daemon/data/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

constexpr size_t kAlignment = 8;

absl::Status SystemError(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

absl::Status CheckTensors(const std::string& path, const std::vector<TensorView>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    if (tensor.name.empty() || tensor.name == "__metadata__" ||
        (i > 0 && tensors[i - 1].name == tensor.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": tensor \"", tensor.name, "\": the name is empty, reserved or used twice"));
    }
    auto bytes = static_cast<uint64_t>(SizeOf(tensor.dtype));
    for (int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
    if (bytes != tensor.data.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": tensor \"", tensor.name, "\": ", Describe(tensor.dtype, tensor.shape), " needs ",
          bytes, " bytes, not ", tensor.data.size()));
    }
  }
  return absl::OkStatus();
}

// Length and JSON, padded so that the data starts aligned.
std::string Header(const std::vector<TensorView>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    nlohmann::ordered_json& entry = json[tensor.name];
    entry["dtype"] = SafetensorsName(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {offset, offset + tensor.data.size()};
    offset += tensor.data.size();
  }
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::string header;
  for (int shift = 0; shift < 64; shift += 8) header += static_cast<char>(text.size() >> shift);
  return header + text;
}

bool WriteAll(int file, const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(file, at, std::min<size_t>(bytes, size_t{1} << 30));
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    at += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

absl::Status WriteFile(const std::string& path, const std::vector<TensorView>& tensors,
                       const std::string& header) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return SystemError(path, "open");
  bool written = WriteAll(file, header.data(), header.size());
  for (const TensorView& tensor : tensors) {
    written = written && WriteAll(file, tensor.data.data(), tensor.data.size());
  }
  absl::Status status;
  if (!written) {
    status = SystemError(path, "write");
  } else if (fsync(file) != 0) {
    status = SystemError(path, "fsync");
  }
  if (close(file) != 0 && status.ok()) status = SystemError(path, "close");
  return status;
}

// The rename itself is durable once the directory is.
absl::Status SyncDirectory(const std::string& directory) {
  const int file = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return SystemError(directory, "open");
  const absl::Status status = fsync(file) == 0 ? absl::OkStatus() : SystemError(directory, "fsync");
  close(file);
  return status;
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, std::vector<TensorView> tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  RETURN_IF_ERROR(CheckTensors(path, tensors));
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  absl::Status status = WriteFile(temporary, tensors, Header(tensors, metadata));
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = SystemError(path, "rename");
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return SyncDirectory(directory.empty() ? "." : directory);
}

}  // namespace stagewright
