"""Circumstances of training that need a model of transformers."""

import torch
from torch import nn

from .configurations import text_transformer
from .decoders import GROUPED
from .entry import SAMPLES, Task, entry
from .tasks import CLASSES, IGNORED, language_model, padded, padding, tokens

SOURCE = "transformers"


def gpt2(**config) -> nn.Module:
    return text_transformer("GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=32, **config)


def llama(**config) -> nn.Module:
    return text_transformer("LlamaForCausalLM", **GROUPED, **config)


def _with_labels(model: nn.Module) -> Task:
    """The usual way of transformers: labels go in, the loss comes out."""
    ids, kept = tokens(), padding()
    return Task(model, {"input_ids": ids, "attention_mask": kept, "labels": padded(ids, kept)}, None)


@entry("GPT2 returns its loss", SOURCE)
def _gpt2_loss() -> Task:
    return _with_labels(gpt2())


@entry("Llama returns its loss", SOURCE)
def _llama_loss() -> Task:
    return _with_labels(llama())


@entry("Llama, loss=lambda output: output.loss", SOURCE)
def _llama_lambda() -> Task:
    task = _with_labels(llama())
    return Task(task.model, task.inputs, lambda output: output.loss)


@entry("T5 returns its loss", SOURCE)
def _t5_loss() -> Task:
    model = text_transformer(
        "T5ForConditionalGeneration", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    labels = padded(tokens(), padding())
    return Task(model, {"input_ids": tokens(), "attention_mask": padding(), "labels": labels}, None)


@entry("BERT returns its loss", SOURCE)
def _bert_loss() -> Task:
    model = text_transformer("BertForSequenceClassification", num_labels=CLASSES)
    inputs = {"input_ids": tokens(), "attention_mask": padding(), "labels": torch.randint(CLASSES, (SAMPLES,))}
    return Task(model, inputs, None)


# Five roundings of a type of 8 bits: sums of micro-batches are rounded once more than a whole mini-batch in each step.
TOLERANCE_BFLOAT16 = 2e-2


@entry("GPT2 in bfloat16", SOURCE, tolerance=TOLERANCE_BFLOAT16)
def _gpt2_bfloat16() -> Task:
    return language_model(gpt2().bfloat16())


@entry("Llama in bfloat16", SOURCE, tolerance=TOLERANCE_BFLOAT16)
def _llama_bfloat16() -> Task:
    return language_model(llama().bfloat16())


@entry("GPT2 with dropout", SOURCE, random=True)
def _gpt2_dropout() -> Task:
    model = gpt2()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1
    return language_model(model)


@entry("GPT2, gradient checkpointing", SOURCE)
def _gpt2_checkpointing() -> Task:
    model = gpt2()
    model.gradient_checkpointing_enable()
    return language_model(model)


@entry("Llama, gradient checkpointing", SOURCE)
def _llama_checkpointing() -> Task:
    model = llama(use_cache=False)
    model.gradient_checkpointing_enable()
    return language_model(model)


@entry("Llama, eager attention", SOURCE)
def _llama_eager() -> Task:
    return language_model(llama(attn_implementation="eager"))


@entry("Llama, tied embeddings", SOURCE)
def _llama_tied() -> Task:
    return language_model(llama(tie_word_embeddings=True), mask=True)


@entry("Llama, left padding", SOURCE)
def _llama_left() -> Task:
    ids, kept = tokens(), padding().flip(1)
    task = language_model(llama())
    labels = ids.masked_fill(kept == 0, IGNORED)
    return Task(task.model, {"input_ids": ids, "attention_mask": kept}, task.loss, labels)


@entry("Llama, frozen but for its head", SOURCE)
def _llama_frozen() -> Task:
    model = llama()
    model.model.requires_grad_(False)
    return language_model(model)


@entry(
    "Mixtral with the loss of its router",
    SOURCE,
    whole=True,
    refusal="the router's loss multiplies means over the batch",
)
def _mixtral_router() -> Task:
    model = text_transformer(
        "MixtralForCausalLM", **GROUPED, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True
    )
    return _with_labels(model)


@entry("A classifier on a frozen BERT", SOURCE)
def _bert_frozen() -> Task:
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = text_transformer("BertModel")
            self.head = nn.Linear(32, CLASSES)

        def forward(self, input_ids, attention_mask):
            with torch.no_grad():
                hidden = self.encoder(input_ids, attention_mask).last_hidden_state
            kept = attention_mask.unsqueeze(-1)
            return self.head((hidden * kept).sum(1) / kept.sum(1))

    inputs = {"input_ids": tokens(), "attention_mask": padding()}
    return Task(Head(), inputs, nn.CrossEntropyLoss(), torch.randint(CLASSES, (SAMPLES,)))
