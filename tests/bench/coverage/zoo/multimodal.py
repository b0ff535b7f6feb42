"""Models of transformers that join several kinds of input."""

import torch
import torch.nn.functional as F

from .configurations import TEXT, transformer
from .entry import SAMPLES, Task, add
from .tasks import CLASSES, LENGTH, class_loss, next_token_loss, padded, padding, token_loss, tokens

LAYERS = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
IMAGES = dict(**LAYERS, image_size=32, patch_size=8)
TEXTS = {**TEXT}
MIXED = "samples are compared with each other, over the whole batch"


def images() -> torch.Tensor:
    return torch.randn(SAMPLES, 3, 32, 32)


def pairs() -> dict:
    """Images and their texts; every text ends with the id 63, which some models look for."""
    ids = tokens(vocabulary=60)
    ids[:, -1] = 63
    return {"input_ids": ids, "attention_mask": torch.ones(SAMPLES, LENGTH, dtype=torch.long), "pixel_values": images()}


def clip():
    text = {**TEXTS, "eos_token_id": 63, "projection_dim": 16}
    return transformer(
        "CLIPModel", text_config=text, vision_config=dict(**IMAGES, projection_dim=16), projection_dim=16
    )


def contrastive_loss(output, labels):
    """CLIP's; the labels come with the data: 0, 1, 2, ... of every mini-batch."""
    return (F.cross_entropy(output.logits_per_image, labels) + F.cross_entropy(output.logits_per_text, labels)) / 2


def contrastive_loss_with_own_labels(output, _):
    labels = torch.arange(len(output.logits_per_image))
    return (F.cross_entropy(output.logits_per_image, labels) + F.cross_entropy(output.logits_per_text, labels)) / 2


def pair_loss(output, target):
    """How far the text's place is from the image's: of each pair alone."""
    distance = 1 - F.cosine_similarity(output.image_embeds, output.text_embeds)
    return (distance * target).mean()


def _siglip() -> Task:
    """Every pair of an image and a text of the batch counts."""
    model = transformer("SiglipModel", text_config={**TEXTS, "projection_size": 32}, vision_config=IMAGES)

    def loss(output, _):
        scores = output.logits_per_text
        signs = 2 * torch.eye(len(scores)) - 1
        return -F.logsigmoid(signs * scores).sum(-1).mean()

    inputs = pairs()
    return Task(model, inputs, loss, torch.zeros(SAMPLES))


def _blip() -> Task:
    model = transformer(
        "BlipForConditionalGeneration",
        vision_config=IMAGES,
        projection_dim=16,
        text_config={**TEXTS, "encoder_hidden_size": 32, "projection_dim": 16, "sep_token_id": 2},
    )
    inputs = pairs()
    labels = padded(inputs["input_ids"], padding())
    return Task(model, inputs, lambda output, target: next_token_loss(output, target), labels)


def _flava() -> Task:
    model = transformer(
        "FlavaModel",
        text_config=TEXTS,
        image_config=IMAGES,
        multimodal_config=LAYERS,
        projection_dim=16,
        hidden_size=32,
    )

    def loss(output, target):
        return F.mse_loss(output.multimodal_embeddings[:, 0], target)

    return Task(model, pairs(), loss, torch.randn(SAMPLES, 32))


def _question_answering(kind: str, refusal_free_inputs: dict, **config) -> Task:
    model = transformer(kind, num_labels=CLASSES, **config)
    return Task(model, refusal_free_inputs, class_loss, torch.randint(CLASSES, (SAMPLES,)))


def _vilt() -> Task:
    inputs = {**pairs(), "pixel_mask": torch.ones(SAMPLES, 32, 32, dtype=torch.long)}
    return _question_answering("ViltForQuestionAnswering", inputs, **{**TEXTS, **IMAGES, "max_image_length": 16})


def _visual_bert() -> Task:
    ids = tokens()
    inputs = dict(
        input_ids=ids,
        attention_mask=padding(),
        visual_embeds=torch.randn(SAMPLES, 4, 16),
        visual_attention_mask=torch.ones(SAMPLES, 4, dtype=torch.long),
    )
    model = transformer("VisualBertForQuestionAnswering", visual_embedding_dim=16, num_labels=CLASSES, **TEXTS)
    return Task(model, inputs, class_loss, torch.randint(CLASSES, (SAMPLES,)))


def _lxmert() -> Task:
    model = transformer(
        "LxmertForQuestionAnswering",
        visual_feat_dim=16,
        l_layers=1,
        x_layers=1,
        r_layers=1,
        num_qa_labels=CLASSES,
        **{k: v for k, v in TEXTS.items() if k != "num_hidden_layers"}
    )
    inputs = dict(
        input_ids=tokens(),
        attention_mask=padding(),
        visual_feats=torch.randn(SAMPLES, 4, 16),
        visual_pos=torch.rand(SAMPLES, 4, 4),
    )

    def loss(output, labels):
        return F.cross_entropy(output.question_answering_score, labels)

    return Task(model, inputs, loss, torch.randint(CLASSES, (SAMPLES,)))


def _layout() -> Task:
    model = transformer(
        "LayoutLMv3ForTokenClassification",
        input_size=32,
        patch_size=8,
        num_labels=CLASSES,
        max_2d_position_embeddings=64,
        coordinate_size=4,
        shape_size=4,
        **{**TEXTS, "hidden_size": 24, "max_position_embeddings": 40}
    )
    left, size = torch.randint(24, (SAMPLES, LENGTH, 2)), torch.randint(1, 16, (SAMPLES, LENGTH, 2))
    kept = padding()
    inputs = dict(
        input_ids=tokens(), attention_mask=kept, bbox=torch.cat([left, left + size], dim=-1), pixel_values=images()
    )
    return Task(model, inputs, token_loss, padded(torch.randint(CLASSES, (SAMPLES, LENGTH)), kept))


def _git() -> Task:
    model = transformer("GitForCausalLM", vision_config=IMAGES, **TEXTS)
    inputs = pairs()

    def loss(output, labels):
        logits = output.logits[:, -LENGTH:-1]
        return F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)

    return Task(model, inputs, loss, padded(inputs["input_ids"], padding()))


def _segmenter() -> Task:
    """CLIPSeg: the part of an image that a text speaks of."""
    text = {**TEXTS, "eos_token_id": 63}
    model = transformer(
        "CLIPSegForImageSegmentation",
        text_config=text,
        vision_config=IMAGES,
        projection_dim=16,
        extract_layers=[0, 1],
        reduce_dim=16,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=16,
        conditional_layer=0,
    )

    def loss(output, target):
        return F.binary_cross_entropy_with_logits(output.logits, target)

    return Task(model, pairs(), loss, torch.randint(2, (SAMPLES, 32, 32)).float())


def _llava() -> Task:
    """An image's features take the places of 16 tokens of their own in the text."""
    model = transformer(
        "LlavaForConditionalGeneration",
        vision_config=dict(model_type="clip_vision_model", **IMAGES, projection_dim=16),
        text_config=dict(model_type="llama", **{**TEXTS, "max_position_embeddings": 64}),
        image_token_index=63,
        image_seq_length=16,
    )
    ids = tokens(24, vocabulary=60)
    ids[:, 1:17] = 63
    labels = ids.masked_fill(ids == 63, -100)
    for i in range(SAMPLES):
        labels[i, 24 - i % 5 :] = -100
    return Task(model, {"input_ids": ids, "pixel_values": images()}, next_token_loss, labels)


def _perceiver() -> Task:
    model = transformer(
        "PerceiverForImageClassificationLearned",
        d_latents=16,
        num_latents=4,
        d_model=32,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=2,
        num_cross_attention_heads=2,
        image_size=16,
        num_labels=CLASSES,
    )
    return Task(model, {"inputs": torch.randn(SAMPLES, 3, 16, 16)}, class_loss, torch.randint(CLASSES, (SAMPLES,)))


LABELS = torch.arange(SAMPLES) % 8
add(
    "CLIP, contrastive",
    "transformers",
    lambda: Task(clip(), pairs(), contrastive_loss, LABELS),
    whole=True,
    refusal=MIXED,
)
add(
    "CLIP, contrastive, labels made in the loss",
    "transformers",
    lambda: Task(clip(), pairs(), contrastive_loss_with_own_labels, LABELS),
    whole=True,
    refusal=MIXED,
)
add("CLIP, loss of each pair", "transformers", lambda: Task(clip(), pairs(), pair_loss, torch.rand(SAMPLES)))
add("SigLIP", "transformers", _siglip, whole=True, refusal=MIXED)
add("BLIP", "transformers", _blip)
add("FLAVA", "transformers", _flava)
add("ViLT", "transformers", _vilt, refusal="the size of an interpolation is read from the mask's values")
add("VisualBERT", "transformers", _visual_bert)
add("LXMERT", "transformers", _lxmert)
add("LayoutLMv3", "transformers", _layout)
add("GIT", "transformers", _git)
add("CLIPSeg", "transformers", _segmenter)
add("LLaVA", "transformers", _llava)
add("Perceiver, images", "transformers", _perceiver)
