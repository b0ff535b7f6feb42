#include "planner_service/wire/sealed.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message_lite.h>

#include "common/artifacts/content_hash.h"

namespace stagewright {

Seal SealOf(const google::protobuf::MessageLite& message) {
  Seal seal;
  {
    google::protobuf::io::StringOutputStream stream(&seal.bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  seal.hash = ContentHash(seal.bytes);
  return seal;
}

}  // namespace stagewright
