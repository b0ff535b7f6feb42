"""Encoders of text and other sequences, of transformers: filling in hidden tokens, and classification."""

import torch

from .configurations import text_transformer
from .entry import SAMPLES, add
from .tasks import CLASSES, LENGTH, masked_language_model, text_classifier

DISTIL = dict(dim=32, hidden_dim=48, n_layers=2, n_heads=4)
RELATIVE = dict(
    relative_attention=True, max_relative_positions=8, position_biased_input=False, pos_att_type=["p2c", "c2p"]
)

HIDDEN_TOKENS = {
    "BERT": ("BertForMaskedLM", {}),
    "RoBERTa": ("RobertaForMaskedLM", dict(max_position_embeddings=40)),
    "XLM-RoBERTa": ("XLMRobertaForMaskedLM", dict(max_position_embeddings=40)),
    "DistilBERT": ("DistilBertForMaskedLM", DISTIL),
    "ALBERT": ("AlbertForMaskedLM", dict(embedding_size=16)),
    "ELECTRA": ("ElectraForMaskedLM", dict(embedding_size=16)),
    "DeBERTa": ("DebertaForMaskedLM", RELATIVE),
    "DeBERTa-v2": ("DebertaV2ForMaskedLM", RELATIVE),
    "MPNet": ("MPNetForMaskedLM", dict(max_position_embeddings=40)),
    "ESM": ("EsmForMaskedLM", dict(mask_token_id=3, max_position_embeddings=40)),
    "ESM, rotary": ("EsmForMaskedLM", dict(mask_token_id=3, position_embedding_type="rotary", token_dropout=True)),
    "ModernBERT": ("ModernBertForMaskedLM", dict(cls_token_id=1, sep_token_id=2, local_attention=6)),
    "MobileBERT": ("MobileBertForMaskedLM", dict(intra_bottleneck_size=16, embedding_size=16, true_hidden_size=16)),
    "RoFormer": ("RoFormerForMaskedLM", {}),
    "RemBERT": ("RemBertForMaskedLM", dict(input_embedding_size=16, output_embedding_size=16)),
    "Megatron-BERT": ("MegatronBertForMaskedLM", {}),
    "ConvBERT": ("ConvBertForMaskedLM", dict(embedding_size=16, conv_kernel_size=3, head_ratio=2)),
    "SqueezeBERT": ("SqueezeBertForMaskedLM", dict(embedding_size=32)),
    "Data2Vec (text)": ("Data2VecTextForMaskedLM", dict(max_position_embeddings=40)),
    "Longformer": ("LongformerForMaskedLM", dict(attention_window=[4, 4], max_position_embeddings=40)),
    "BigBird": ("BigBirdForMaskedLM", dict(attention_type="original_full")),
    "Funnel": (
        "FunnelForMaskedLM",
        dict(
            num_hidden_layers=None, block_sizes=[1, 1], num_decoder_layers=1, d_model=32, n_head=4, d_head=8, d_inner=48
        ),
    ),
    "XMOD": ("XmodForMaskedLM", dict(languages=["en"], default_language="en", max_position_embeddings=40)),
}
CLASSIFIERS = {
    "BERT, classification": ("BertForSequenceClassification", {}),
    "RoBERTa, classification": ("RobertaForSequenceClassification", dict(max_position_embeddings=40)),
    "XLNet, classification": (
        "XLNetForSequenceClassification",
        dict(max_position_embeddings=None, d_model=32, n_layer=2, n_head=4, d_inner=48),
    ),
    "CANINE": (
        "CanineForSequenceClassification",
        dict(downsampling_rate=4, local_transformer_stride=4, num_hash_buckets=32),
    ),
}

REFUSED = {
    "Longformer": "whether a sample has global attention is read from the mask's values",
    "XMOD": "how many samples an adapter sees is read from the languages' values",
}

for _name, (_kind, _config) in HIDDEN_TOKENS.items():
    add(
        _name, "transformers",
        lambda kind=_kind, config=_config: masked_language_model(text_transformer(kind, **config)),
        refusal=REFUSED.get(_name, ""),
    )  # fmt: skip
for _name, (_kind, _config) in CLASSIFIERS.items():
    add(
        _name, "transformers",
        lambda kind=_kind, config=_config: text_classifier(text_transformer(kind, num_labels=CLASSES, **config)),
    )  # fmt: skip


def _layout():
    model = text_transformer("LayoutLMForMaskedLM", max_2d_position_embeddings=64)
    left, size = torch.randint(32, (SAMPLES, LENGTH, 2)), torch.randint(1, 16, (SAMPLES, LENGTH, 2))
    return masked_language_model(model, bbox=torch.cat([left, left + size], dim=-1))


def _mixing():
    """Fourier transforms in place of attention; it takes no mask."""
    return masked_language_model(text_transformer("FNetForMaskedLM"), mask=False)


def _landmarks():
    """Without a mask: with one, this version of the model fails in plain PyTorch, too."""
    model = text_transformer("NystromformerForMaskedLM", num_landmarks=4, segment_means_seq_len=LENGTH)
    return masked_language_model(model, mask=False)


def _xlnet():
    model = text_transformer(
        "XLNetLMHeadModel", max_position_embeddings=None, d_model=32, n_layer=2, n_head=4, d_inner=48
    )
    return masked_language_model(model)


def _perceiver():
    model = text_transformer(
        "PerceiverForMaskedLM", d_latents=16, num_latents=4, d_model=32, num_blocks=1, num_self_attends_per_block=2,
        num_self_attention_heads=2, num_cross_attention_heads=2, qk_channels=16, v_channels=16,
    )  # fmt: skip
    task = masked_language_model(model, length=32)
    task.inputs["inputs"] = task.inputs.pop("input_ids")
    return task


add("LayoutLM", "transformers", _layout)
add(
    "Nystromformer", "transformers", _landmarks,
    refusal="when traced it makes a mask that does not fit its landmarks; torch.export alone fails alike",
)  # fmt: skip
add("FNet", "transformers", _mixing)
add("XLNet", "transformers", _xlnet)
add("Perceiver", "transformers", _perceiver)
