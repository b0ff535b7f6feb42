"""Tiny configurations of models of transformers and diffusers."""

import re

import diffusers
import transformers
from torch import nn

_DROPOUT = re.compile(r"drop(out)?($|_)|_?pdrop$|layerdrop|drop_path|classifier_drop")
# Of most language models; names that a configuration does not know do no harm.
TEXT = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip


def without_dropout(config: transformers.PretrainedConfig) -> transformers.PretrainedConfig:
    """Sets every rate of dropout in a configuration, and in those inside it, to 0."""
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PretrainedConfig):
            without_dropout(value)
        elif isinstance(value, float) and _DROPOUT.search(name):
            setattr(config, name, 0.0)
    return config


def transformer(model: str, **config) -> nn.Module:
    """A model of transformers by the name of its class, without dropout."""
    kind = getattr(transformers, model)
    return kind(without_dropout(kind.config_class(**config)))


def text_transformer(model: str, **config) -> nn.Module:
    """With the sizes of TEXT; None leaves one of them out."""
    return transformer(model, **{name: value for name, value in {**TEXT, **config}.items() if value is not None})


def diffuser(model: str, **config) -> nn.Module:
    """A model of diffusers by the name of its class, without dropout, which some of its blocks have unasked."""
    made = getattr(diffusers, model)(**config)
    for module in made.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return made
