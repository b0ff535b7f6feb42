"""What a planner does otherwise than its paper is numbered once: the list in the essays of its sources and the list on its
page in docs/planners have the same numbers and titles."""

import re

import tree

PLANNERS = "planner_service/planners/"
PAGES = "docs/planners/"

# An essay's list begins below a comment line like this, and so does a page's below its heading.
ESSAY = re.compile(r"^// Deviations from [^\n]*:\n((?://(?: .*)?\n)*)", re.MULTILINE)
PAGE = re.compile(r"^## Deviations [^\n]*\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
# "//  3. Idle devices. Where ..." and "3. *Idle devices.* Where ...": a number and a title.
ESSAY_ITEM = re.compile(r"^// {1,2}(\d+)\. ([^.\n]+)\.", re.MULTILINE)
PAGE_ITEM = re.compile(r"^(\d+)\. \*([^.*\n]+)\.\*", re.MULTILINE)
ANY_ESSAY_ITEM = re.compile(r"^// {1,2}(\d+)\. ", re.MULTILINE)
ANY_PAGE_ITEM = re.compile(r"^(\d+)\. ", re.MULTILINE)


def items_of(text, lists, item, any_item):
  """The (number, title) pairs of all lists in a text, and the numbers that have no title."""
  found, bare = [], []
  for listed in lists.findall(text):
    titled = [(int(number), title) for number, title in item.findall(listed)]
    found += titled
    bare += [number for number in map(int, any_item.findall(listed)) if number not in dict(titled)]
  return found, bare


def check_planner(name, essays, page):
  """`essays` has the texts of a planner's sources by path, `page` is the text of its page or None."""
  findings, numbered = [], []
  for path, text in essays.items():
    found, bare = items_of(text, ESSAY, ESSAY_ITEM, ANY_ESSAY_ITEM)
    numbered += found
    findings += [f"{path}: deviation {number} has no title (a few words and a full stop)" for number in bare]
  numbered.sort()
  path = f"{PAGES}{name}.md"
  quoted, bare = items_of(page or "", PAGE, PAGE_ITEM, ANY_PAGE_ITEM)
  findings += [f"{path}: deviation {number} has no title (*a few words.*)" for number in bare]
  numbers = [number for number, _ in numbered]
  if numbers != list(range(1, len(numbers) + 1)):
    findings.append(f"{PLANNERS}{name}: deviations are numbered {numbers}, not 1, 2, 3, ... once each")
  for number, title in numbered:
    if (number, title) not in quoted:
      findings.append(f"{path}: does not quote deviation {number}, \"{title}\"")
  for number, title in quoted:
    if (number, title) not in numbered:
      findings.append(f"{path}: deviation {number}, \"{title}\", is in no essay of {PLANNERS}{name}")
  if not findings and quoted != numbered:
    findings.append(f"{path}: deviations are not in order")
  return findings


def check(sources):
  essays = {}
  for path in sources.matching([".h", ".cc"], under=PLANNERS):
    name = path.removeprefix(PLANNERS).split("/")[0]
    essays.setdefault(name, {})[path] = sources.text(path)
  findings = []
  for name in sorted(essays):
    page = f"{PAGES}{name}.md"
    findings += check_planner(name, essays[name], sources.text(page) if page in sources.paths else None)
  return findings


if __name__ == "__main__":
  tree.main(check)
