"""Plans in the terms of other frameworks; `python -m stagewright.frameworks --help`, docs/frameworks.md."""
