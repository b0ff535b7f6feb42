"""From a module to a pure graph of ATen operators with one symbolic batch size."""
