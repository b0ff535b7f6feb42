#include "common/channel/unreached.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/channel/address.h"

namespace stagewright {
namespace {

// A planner that was spoken to in another way than it asks for ends the connection without a word.
std::string OfAnEndedConnection(const TlsFiles& tls) {
  if (tls.empty()) return "it may speak TLS only: give --tls-ca";
  if (tls.certificate.empty()) return "it may ask for a certificate: give --tls-cert and --tls-key";
  return absl::StrCat("it may not take the certificate of --tls-cert ", tls.certificate,
                      ": is it of an authority that the planner knows?");
}

// The variable of the environment that names a proxy on the way, as gRPC looks for it; else empty.
std::string ProxyOnTheWay(const std::string& address, const TlsFiles& tls) {
  if (tls.empty() || IsLoopback(address)) return "";  // OpenChannel asks none.
  for (const char* variable : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    const char* const proxy = std::getenv(variable);
    if (proxy != nullptr && *proxy != '\0') return variable;
  }
  return "";
}

std::string Advice(absl::string_view said, const std::string& address,
                   const ChannelSecurity& security) {
  const auto has = [said](absl::string_view part) { return absl::StrContains(said, part); };
  const std::string proxy = ProxyOnTheWay(address, security.tls);
  if (!proxy.empty() && has("failed to connect"))
    return absl::StrCat("on the way is the proxy of ", proxy,
                        ", unless no_proxy names the planner");
  if (has("Connection refused")) return "is it started, and is that its --listen?";
  // That it is to be spoken to in the clear is not for whoever answers there to say.
  if (has("wrong version number"))
    return "what answers there speaks no TLS: is it the planner, with --tls-cert?";
  if (has("certificate verify failed")) {
    const std::string& ca = security.tls.authorities;
    return absl::StrCat("its certificate is of no authority in ",
                        ca.empty() ? "this machine's list" : absl::StrCat("--tls-ca ", ca),
                        ", or has expired");
  }
  if (has("Hostname Verification"))
    return "its certificate is for other names: call it by one of those";
  if (has("Failed parsing HTTP/2") || has("http1.x server") || has("Received http2 header"))
    return "what answers there is no planner";
  if (has("failed to connect") && (has("Socket closed") || has("Connection reset")))
    return OfAnEndedConnection(security.tls);
  return "";
}

}  // namespace

std::string WithAdvice(absl::string_view said, const std::string& address,
                       const ChannelSecurity& security) {
  const std::string advice = Advice(said, address, security);
  return advice.empty() ? std::string(said) : absl::StrCat(said, " (", advice, ")");
}

}  // namespace stagewright
