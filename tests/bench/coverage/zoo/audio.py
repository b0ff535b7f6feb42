"""Models of speech and sound of transformers."""

import torch
import torch.nn.functional as F

from .configurations import transformer
from .entry import SAMPLES, Task, add
from .tasks import CLASSES, class_loss, padded, padding, token_loss, tokens

SPEECH = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, conv_dim=(16, 16),
    conv_stride=(4, 4), conv_kernel=(8, 8), num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
    apply_spec_augment=False, vocab_size=16, classifier_proj_size=16, num_labels=CLASSES, pad_token_id=0,
)  # fmt: skip


def _classifier(kind: str, **config) -> Task:
    waves = torch.randn(SAMPLES, 400)
    model = transformer(kind, **{**SPEECH, **config})
    return Task(model, {"input_values": waves}, class_loss, torch.randint(CLASSES, (SAMPLES,)))


def _ctc_loss(output, labels: torch.Tensor) -> torch.Tensor:
    """Speech recognition: labels of equal length, the whole of every recording."""
    logits = F.log_softmax(output.logits, dim=-1).transpose(0, 1)
    lengths = torch.full((logits.shape[1],), logits.shape[0], dtype=torch.long)
    return F.ctc_loss(logits, labels, lengths, torch.full_like(lengths, labels.shape[1]), zero_infinity=True)


def _recogniser() -> Task:
    return Task(
        transformer("Wav2Vec2ForCTC", **SPEECH), {"input_values": torch.randn(SAMPLES, 400)}, _ctc_loss,
        torch.randint(1, 16, (SAMPLES, 5)),
    )  # fmt: skip


def _own_ctc_loss() -> Task:
    """The model's own loss: labels of several lengths, padded, which it selects and concatenates."""
    labels = padded(torch.randint(1, 16, (SAMPLES, 6)), torch.arange(6) < 2 + torch.arange(SAMPLES)[:, None] % 4)
    return Task(transformer("Wav2Vec2ForCTC", **SPEECH), {"input_values": torch.randn(SAMPLES, 400), "labels": labels}, None)


def _whisper() -> Task:
    model = transformer(
        "WhisperForConditionalGeneration", vocab_size=64, num_mel_bins=8, d_model=32, encoder_layers=2,
        decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
        max_source_positions=12, max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    labels = tokens()
    before = torch.cat([torch.full((SAMPLES, 1), 1), labels[:, :-1]], dim=1)
    inputs = {"input_features": torch.randn(SAMPLES, 8, 24), "decoder_input_ids": before}
    return Task(model, inputs, token_loss, padded(labels, padding()))


def _speech_to_text() -> Task:
    model = transformer(
        "Speech2TextForConditionalGeneration", vocab_size=64, input_feat_per_channel=8, input_channels=1, d_model=32,
        encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, conv_channels=16, max_source_positions=64, max_target_positions=32,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2,
    )  # fmt: skip
    labels = tokens()
    before = torch.cat([torch.full((SAMPLES, 1), 2), labels[:, :-1]], dim=1)
    inputs = {"input_features": torch.randn(SAMPLES, 24, 8), "decoder_input_ids": before}
    return Task(model, inputs, token_loss, padded(labels, padding()))


def _spectrogram() -> Task:
    model = transformer(
        "ASTForAudioClassification", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        patch_size=4, frequency_stride=4, time_stride=4, max_length=16, num_mel_bins=8, num_labels=CLASSES,
    )  # fmt: skip
    return Task(model, {"input_values": torch.randn(SAMPLES, 16, 8)}, class_loss, torch.randint(CLASSES, (SAMPLES,)))


add("Wav2Vec2", "transformers", lambda: _classifier("Wav2Vec2ForSequenceClassification"))
add("Wav2Vec2, CTC", "transformers", _recogniser)
add("Wav2Vec2, its own CTC loss", "transformers", _own_ctc_loss)
add("HuBERT", "transformers", lambda: _classifier("HubertForSequenceClassification"))
add("WavLM", "transformers", lambda: _classifier("WavLMForSequenceClassification"))
add("UniSpeech-SAT", "transformers", lambda: _classifier("UniSpeechSatForSequenceClassification"))
add("SEW", "transformers", lambda: _classifier("SEWForSequenceClassification", squeeze_factor=2))
add("Data2Vec (audio)", "transformers", lambda: _classifier("Data2VecAudioForSequenceClassification"))
add("Whisper", "transformers", _whisper)
add("Speech2Text", "transformers", _speech_to_text)
add("Audio Spectrogram Transformer", "transformers", _spectrogram)
