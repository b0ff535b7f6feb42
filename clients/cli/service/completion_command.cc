#include "clients/cli/service/completion_command.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/cli/exit_code.h"

namespace stagewright::cli {
namespace {

// What may follow a command: its own commands and flags.
std::vector<std::string> WordsOf(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::App* next : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (!next->get_name().empty()) words.push_back(next->get_name());
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  std::sort(words.begin(), words.end());
  return words;
}

// A line of the script for each command: the commands that lead to it, and what may follow.
void AppendCases(const CLI::App& command, const std::string& path, std::string& out) {
  absl::StrAppend(&out, "    \"", path, "\") words=\"", absl::StrJoin(WordsOf(command), " "),
                  "\" ;;\n");
  for (const CLI::App* next : command.get_subcommands([](const CLI::App*) { return true; }))
    AppendCases(*next, absl::StrCat(path, path.empty() ? "" : " ", next->get_name()), out);
}

std::string BashScript(const CLI::App& app) {
  std::string cases;
  AppendCases(app, "", cases);
  return absl::StrCat(R"(# source <(stagewright completion bash)
_stagewright() {
  local current=${COMP_WORDS[COMP_CWORD]} path= word next words
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    next="${path:+$path }$word"
    _stagewright_words "$next" && path=$next
  done
  _stagewright_words "$path"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- "$current"))
}
_stagewright_words() {
  case "$1" in
)",
                      cases, R"(    *) return 1 ;;
  esac
}
complete -o filenames -F _stagewright stagewright
)");
}

std::string ZshScript(const CLI::App& app) {
  return absl::StrCat("# source <(stagewright completion zsh)\n",
                      "autoload -U +X bashcompinit && bashcompinit\n", BashScript(app));
}

}  // namespace

void AddCompletionCommand(CLI::App& app, Globals& globals) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      app.add_subcommand("completion", "print a script that completes commands and flags");
  completion->add_option("shell", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  completion->callback([shell, &app, &globals] {
    std::cout << (*shell == "bash" ? BashScript(app) : ZshScript(app));
    globals.exit_code = kSuccess;
  });
}

}  // namespace stagewright::cli
