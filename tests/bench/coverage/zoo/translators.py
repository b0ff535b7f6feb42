"""Encoder-decoders of transformers, and models of time series."""

import torch
import torch.nn.functional as F

from .configurations import text_transformer, transformer
from .entry import SAMPLES, Task, add
from .tasks import translation

T5 = dict(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)
BART = dict(
    d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=48, decoder_ffn_dim=48, decoder_start_token_id=2,
)  # fmt: skip
SERIES = dict(
    prediction_length=4, context_length=12, lags_sequence=[1, 2], num_time_features=1, d_model=16, encoder_layers=1,
    decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
)  # fmt: skip

TRANSLATORS = {
    "T5": ("T5ForConditionalGeneration", T5),
    "T5 v1.1": ("T5ForConditionalGeneration", dict(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "mT5": ("MT5ForConditionalGeneration", T5),
    "UMT5": ("UMT5ForConditionalGeneration", T5),
    "LongT5": ("LongT5ForConditionalGeneration", dict(**T5, local_radius=3)),
    "Switch Transformers": (
        "SwitchTransformersForConditionalGeneration",
        dict(**T5, num_experts=2, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1),
    ),
    "BART": ("BartForConditionalGeneration", BART),
    "mBART": ("MBartForConditionalGeneration", BART),
    "Pegasus": ("PegasusForConditionalGeneration", BART),
    "Marian": ("MarianMTModel", BART),
    "M2M100": ("M2M100ForConditionalGeneration", BART),
    "Blenderbot": ("BlenderbotForConditionalGeneration", BART),
    "PLBART": ("PLBartForConditionalGeneration", BART),
    "LED": (
        "LEDForConditionalGeneration",
        dict(**BART, attention_window=4, max_encoder_position_embeddings=32, max_decoder_position_embeddings=32),
    ),
    "ProphetNet": (
        "ProphetNetForConditionalGeneration",
        dict(
            num_hidden_layers=None,
            num_encoder_layers=2,
            num_decoder_layers=2,
            num_encoder_attention_heads=4,
            num_decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            ngram=2,
            num_buckets=8,
            relative_max_distance=16,
        ),
    ),
}
REFUSED = {
    "LED": "whether a sample has global attention is read from the mask's values",
    "Switch Transformers": "it loops over the experts that some token of the batch goes to",
}

for _name, (_kind, _config) in TRANSLATORS.items():
    add(
        _name, "transformers",
        lambda kind=_kind, config=_config: translation(text_transformer(kind, **config)),
        refusal=REFUSED.get(_name, ""),
    )  # fmt: skip


def _forecaster(kind: str, **config) -> Task:
    """Of one series; the model returns the negative log-likelihood of the future itself."""
    past = 12 + 2
    inputs = dict(
        past_values=torch.randn(SAMPLES, past), past_time_features=torch.randn(SAMPLES, past, 1),
        past_observed_mask=torch.ones(SAMPLES, past), future_values=torch.randn(SAMPLES, 4),
        future_time_features=torch.randn(SAMPLES, 4, 1),
    )  # fmt: skip
    return Task(transformer(kind, **{**SERIES, **config}), inputs, None)


def _patches(kind: str, **config) -> Task:
    """A forecast of three channels from patches of their past."""
    model = transformer(
        kind, num_input_channels=3, context_length=16, prediction_length=4, patch_length=4, patch_stride=4,
        d_model=16, num_hidden_layers=2, num_layers=2, num_attention_heads=2, ffn_dim=16, **config,
    )  # fmt: skip
    target = torch.randn(SAMPLES, 4, 3)
    return Task(
        model, {"past_values": torch.randn(SAMPLES, 16, 3)},
        lambda output, future: F.mse_loss(output.prediction_outputs, future), target,
    )  # fmt: skip


def _decisions() -> Task:
    model = transformer(
        "DecisionTransformerModel",
        state_dim=5,
        act_dim=3,
        hidden_size=16,
        max_ep_len=32,
        n_layer=2,
        n_head=2,
        n_positions=64,
    )
    inputs = dict(
        states=torch.randn(SAMPLES, 6, 5), actions=torch.randn(SAMPLES, 6, 3), rewards=torch.randn(SAMPLES, 6, 1),
        returns_to_go=torch.randn(SAMPLES, 6, 1), timesteps=torch.arange(6).expand(SAMPLES, 6).contiguous(),
        attention_mask=torch.ones(SAMPLES, 6),
    )  # fmt: skip
    return Task(
        model, inputs, lambda output, actions: F.mse_loss(output.action_preds, actions), torch.randn(SAMPLES, 6, 3)
    )


add("Time Series Transformer", "transformers", lambda: _forecaster("TimeSeriesTransformerForPrediction"))
add(
    "Informer", "transformers", lambda: _forecaster("InformerForPrediction"),
    refusal="its attention draws the keys that it looks at",
)  # fmt: skip
add("Informer, full attention", "transformers", lambda: _forecaster("InformerForPrediction", attention_type="full"))
add("Autoformer", "transformers", lambda: _forecaster("AutoformerForPrediction", label_length=4, moving_average=3))
add("PatchTST", "transformers", lambda: _patches("PatchTSTForPrediction", loss="mse", scaling="std"))
add("PatchTSMixer", "transformers", lambda: _patches("PatchTSMixerForPrediction", loss="mse"))
add("Decision Transformer", "transformers", _decisions)
