"""Writes common/graph/operators/allowed_operators.cc: the operators of LibTorch that a graph may name.

    python scripts/allowed_operators.py            # writes the file
    python scripts/allowed_operators.py --check    # fails if it is not what this LibTorch gives

An operator is allowed if calling it with any arguments that a graph can hold computes tensors from tensors and does nothing
else: it writes to none of its arguments, takes no text but the few words of `_WORDS`, and gives tensors. What LibTorch keeps
for itself (names with a leading underscore, gradients, the parts of one back end) is allowed only where captured models
hold it. Whether a word is one of those allowed is checked in common/graph/operators/check_operators.cc.
"""

import argparse
import pathlib
import sys
import textwrap

import torch

FILE = pathlib.Path(__file__).parents[1] / "common" / "graph" / "operators" / "allowed_operators.cc"

# Types of arguments, without what makes them optional or lists.
_TYPES = {"Tensor", "int", "float", "bool", "number", "complex", "Generator"}
# The one argument of type Device, which workers fill in themselves.
_DEVICE = "device"
# Arguments of type str, each of which chooses among a few words.
_WORDS = {
    "approximate", "driver", "equation", "indexing", "interpolation", "mode", "norm", "ord", "p", "padding",
    "padding_side", "reduce", "rounding_mode", "side", "UPLO"
}  # fmt: skip
# They write to running statistics, which is what they are for.
_STATISTICS = {
    "_batch_norm_with_update.default", "_native_batch_norm_legit.default", "batch_norm.default",
    "instance_norm.default", "native_batch_norm.default"
}  # fmt: skip
# Files, pages of the machine, memory that is handed out as it is found, storage that another tensor owns.
_REFUSED = {
    "data", "empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided", "from_file", "hash_tensor", "lift",
    "new_empty", "new_empty_strided", "convolution_overrideable", "pin_memory", "set", "set_data", "to_mkldnn"
}  # fmt: skip
# Beginnings of names: the parts of one back end; sparse, nested and quantized tensors, which no graph holds.
_FAMILIES = (
    "cudnn_", "miopen_", "mkldnn_", "mkl_", "mps_", "fbgemm_", "xnnpack_", "quantize", "dequantize", "q_", "int_repr",
    "fake_quantize", "fused_moving_avg", "sparse_", "to_sparse", "to_dense", "to_padded", "nested_", "hspmm", "smm",
    "sspaddmm", "slow_conv", "conv_tbc", "segment_reduce", "coalesce", "choose_qparams", "sym_", "resize", "rrelu_with_noise",
    "batch_norm_", "copy_sparse", "ccol_indices", "col_indices", "crow_indices", "row_indices", "indices", "values", "glu_jvp", "unsafe_", "rename",
    "refine_names", "align_"
)  # fmt: skip
# What captured models hold of LibTorch's own.
_INTERNAL = {
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_batch_norm_with_update", "_cdist_forward", "_conj", "_convolution",
    "_grouped_mm", "_log_softmax", "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional", "_pdist_forward", "_prelu_kernel", "_reshape_alias",
    "_scaled_dot_product_attention_math", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu", "_softmax", "_stack",
    "_to_copy", "_trilinear", "_unsafe_index", "_unsafe_view", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "_weight_norm",
    "_weight_norm_interface"
}  # fmt: skip

_HEAD = """// Written by scripts/allowed_operators.py from the operators of LibTorch %s.
#include "common/graph/operators/allowed_operators.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"

namespace stagewright {
namespace {

// Without the "aten." that all begin with; sorted.
constexpr absl::string_view kAllowed =
"""
_TAIL = """;

constexpr absl::string_view kNamespace = "aten.";

}  // namespace

bool IsAllowedOperator(absl::string_view target) {
  static const auto& allowed =
      *new absl::flat_hash_set<absl::string_view>(absl::StrSplit(kAllowed, ' ', absl::SkipEmpty()));
  return target.substr(0, kNamespace.size()) == kNamespace &&
         allowed.contains(target.substr(kNamespace.size()));
}

}  // namespace stagewright
"""


def bare(kind: str) -> str:
    """`Optional[List[Tensor]]` -> `Tensor`"""
    while kind.startswith(("Optional[", "List[")):
        kind = kind[kind.index("[") + 1 : -1]
    return kind


def is_harmless(argument) -> bool:
    kind = bare(str(argument.type))
    if kind == "Device":
        return argument.name == _DEVICE
    if kind == "str":
        return argument.name in _WORDS
    return kind in _TYPES


def is_public(name: str) -> bool:
    if name.startswith("_"):
        return name in _INTERNAL
    return name not in _REFUSED and not name.startswith(_FAMILIES) and "_backward" not in name


def is_allowed(target: str, schema) -> bool:
    writes = any(argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments)
    return (
        is_public(target.rpartition(".")[0])
        and (not writes or target in _STATISTICS)
        and all(map(is_harmless, schema.arguments))
        and any(bare(str(result.type)) == "Tensor" for result in schema.returns)
    )


def allowed() -> list[str]:
    """Without their namespace: `add.Tensor`. Sorted."""
    found = []
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        target = f"{name}.{overload or 'default'}"
        if namespace == "aten" and is_allowed(target, torch._C._get_schema(f"aten::{name}", overload)):
            found.append(target)
    return sorted(found)


def source() -> str:
    lines = textwrap.wrap(" ".join(allowed()), width=92, break_long_words=False, break_on_hyphens=False)
    words = "\n".join(f'    "{line} "' for line in lines)
    return _HEAD % torch.__version__.partition("+")[0] + words + _TAIL


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = source()
    if not parser.parse_args().check:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        print(f"{FILE.name} is not what this LibTorch gives: run scripts/allowed_operators.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
