#include "common/data/safetensors.h"

#include <cstring>

#include "common/base/check.h"

namespace stagewright {

absl::Status ReadTensor(const TensorView& tensor, std::span<std::byte> out) {
  CHECK(out.size() == tensor.data.size());
  if (tensor.file != nullptr) {
    const auto offset = static_cast<size_t>(tensor.data.data() - tensor.file->bytes().data());
    return tensor.file->Read(offset, out);
  }
  if (!out.empty()) std::memcpy(out.data(), tensor.data.data(), out.size());
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  ASSIGN_OR_RETURN(file.mapping_, MappedFile::Open(path));
  const MappedFile& mapping = *file.mapping_;
  ASSIGN_OR_RETURN(file.header_,
                   ReadSafetensorsHeader(path, mapping.bytes().size(),
                                         [&](uint64_t offset, std::span<std::byte> out) {
                                           return mapping.Read(offset, out);
                                         }));
  const std::span<const std::byte> data = mapping.bytes().subspan(file.header_.bytes);
  for (const SafetensorsEntry& entry : file.header_.tensors) {
    file.tensors_.push_back({entry.name, entry.dtype, entry.shape,
                             data.subspan(entry.begin, entry.end - entry.begin), &mapping});
  }
  return file;
}

const TensorView* SafetensorsFile::Find(const std::string& name) const {
  const SafetensorsEntry* entry = header_.Find(name);
  return entry == nullptr ? nullptr
                          : &tensors_[static_cast<size_t>(entry - header_.tensors.data())];
}

}  // namespace stagewright
