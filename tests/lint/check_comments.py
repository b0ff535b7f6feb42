"""Comments of C++ and of the wire can be read alone: none begins or ends in the middle of a sentence, none is torn where a
line grew too long, and none makes the formatter break the declaration before it."""

import re

import tree

COLUMNS = 100
# A line within a paragraph may leave room for the next word and so many columns more.
SPARE = 10

# Strings and characters, in which // begins no comment, and comments.
TOKEN = re.compile(r'R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'|'
                   r"/\*.*?\*/|(?P<comment>//[^\n]*)", re.DOTALL)
FRAGMENT = re.compile(r"(Of|Ditto|Likewise|As above)\b")
# Behind a declaration.
TRAILING_FRAGMENT = re.compile(r"(That|Than|[Aa]nd|[Oo]r|[Ww]hich|[Ww]hose)\b")
ITEM = re.compile(r"\s*([-*]|\d+\.)\s+")
# Lines that are no prose: tables, and remarks for tools.
NO_PROSE = re.compile(r"[|/]|NOLINT|clang-|.*\S\s{2,}\S")
SENTENCE_END = re.compile(r"[.:;!?]$")
# The first line of a statement that goes on, and what may stand above a statement.
BEGUN = re.compile(r"\s*(?!#|else\b|do\b|template\b)\S.*(?<![;{}:\\])$")
ENDED = re.compile(r"(.*[;{}:]|\s*#.*|)$")


class Comment:
  """What follows // on one line: in which column it begins, and whether code stands before it."""

  def __init__(self, line, column, text, trails):
    self.line, self.column, self.text, self.trails = line, column, text, trails
    self.indent = len(text) - len(text.lstrip())

  def goes_on(self, before):
    """Whether it is the next line of the same comment."""
    return before.line == self.line - 1 and before.column == self.column and not self.trails


def comments_of(text):
  found = []
  for match in TOKEN.finditer(text):
    if match.group("comment"):
      begin = text.rfind("\n", 0, match.start()) + 1
      found.append(Comment(text.count("\n", 0, match.start()) + 1, match.start() - begin, match.group("comment")[2:],
                           bool(text[begin:match.start()].strip())))
  return found


def paragraphs(comments):
  """Lists of the lines of one comment that are wrapped together: paragraphs and list items, not tables and not what is
  indented as code is."""
  found, current, indent = [], [], 0
  for comment in comments:
    item = ITEM.match(comment.text)
    body = comment.text[item.end():] if item else comment.text.strip()
    depth = item.end() if item else comment.indent
    if not body or NO_PROSE.match(body):
      current = []
    elif current and not item and depth == indent and comment.goes_on(current[-1]):
      current.append(comment)
    elif item or depth == 1:
      current, indent = [comment], depth
      found.append(current)
    else:
      current = []
  return found


def fragments(comments):
  for comment, after in zip(comments, comments[1:] + [None]):
    text = comment.text.strip()
    match = FRAGMENT.match(text) or (TRAILING_FRAGMENT.match(text) if comment.trails else None)
    if match:
      yield comment.line, f'begins with "{match.group(1)}": say what the comment is about, so that it can be read alone'
    if comment.trails and re.search(r"[,;]$", text) and not (after and after.goes_on(comment)):
      yield comment.line, f'ends with "{text[-1]}": say the whole of it here, or in a comment above'


def torn_lines(comments):
  """Lines that end within a sentence although the next word and more would have had room."""
  for paragraph in paragraphs(comments):
    width = max(len(comment.text) for comment in paragraph)
    for comment, after in zip(paragraph, paragraph[1:]):
      text = comment.text.strip()
      if not SENTENCE_END.search(text) and len(comment.text) + 1 + len(after.text.split()[0]) + SPARE < width:
        yield comment.line, f'"... {text[-30:]}" ends within a sentence, far from the margin: wrap the comment anew'


def torn_words(comments):
  """Single words between lines that are indented otherwise, as below the first line of an item that grew too long."""
  for before, comment, after in zip(comments, comments[1:], comments[2:]):
    if (comment.goes_on(before) and after.goes_on(comment) and before.text.strip() and comment.indent < after.indent and
        re.fullmatch(r"\s*[\w']+,?", comment.text) and re.match(r"\s*[a-z]", after.text)):
      yield comment.line, f'"{comment.text.strip()}" is torn off the line above: wrap the comment anew'


def broken_declarations(text, comments):
  """Statements on two lines that would have had room on one without the comment behind them."""
  lines = text.split("\n")
  behind = {comment.line: comment for comment in comments}

  def code(number):
    line = lines[number - 1]
    return line[:behind[number].column].rstrip() if number in behind else line.rstrip()

  for comment in comments:
    if not comment.trails or comment.line < 3 or not code(comment.line).endswith(";"):
      continue
    first, second, before = code(comment.line - 1), code(comment.line), code(comment.line - 2)
    if comment.line - 1 in behind or not BEGUN.match(first) or not ENDED.match(before):
      continue
    if len(first) + 1 + len(second.lstrip()) <= COLUMNS:
      yield comment.line, "breaks the declaration over two lines: put the comment above it"


def check(sources):
  findings = []
  for path in sources.matching([".h", ".cc", ".cu", ".proto"]):
    text = sources.text(path)
    comments = comments_of(text)
    found = [*fragments(comments), *torn_lines(comments), *torn_words(comments), *broken_declarations(text, comments)]
    findings += [f"{path}:{line}: {what}" for line, what in sorted(found)]
  return findings


if __name__ == "__main__":
  tree.main(check)
