#include "clients/cli/globals.h"

namespace stagewright::cli {

void AddSecurityOptions(CLI::App& app, ChannelSecurity& security) {
  app.add_option("--tls-ca", security.tls.authorities,
                 "authorities, a PEM file: the planner must show a certificate of theirs");
  app.add_option("--tls-cert", security.tls.certificate,
                 "your certificate, a PEM file, if the planner asks for one");
  app.add_option("--tls-key", security.tls.key, "its key, a PEM file without a password");
  app.add_option("--token-file", security.token_file, "file with the token that says who you are");
  app.add_flag("--insecure", security.insecure,
               "speak to a planner on another machine in the clear");
}

void AddOutputOption(CLI::App& command, Globals& globals) {
  command.add_option("-o,--output", globals.output, "table for people, json for programs")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
}

}  // namespace stagewright::cli
