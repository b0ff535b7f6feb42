"""Models of images and video of transformers."""

import torch
import torch.nn.functional as F

from .configurations import transformer
from .entry import SAMPLES, Task, add
from .tasks import CLASSES, class_loss, image_classifier

VIT = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8
)
SWIN = dict(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
STAGES = dict(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic")
PYRAMID = dict(
    num_encoder_blocks=2,
    depths=[1, 1],
    sr_ratios=[2, 1],
    hidden_sizes=[16, 32],
    patch_sizes=[7, 3],
    strides=[4, 2],
    num_attention_heads=[2, 4],
    mlp_ratios=[2, 2],
    decoder_hidden_size=16,
)

# Name -> class, configuration, whether it has batch normalisation.
CLASSIFIERS = {
    "ViT": ("ViTForImageClassification", VIT, False),
    "DeiT": ("DeiTForImageClassification", VIT, False),
    "BEiT": ("BeitForImageClassification", dict(**VIT, use_relative_position_bias=True), False),
    "Data2Vec (vision)": ("Data2VecVisionForImageClassification", VIT, False),
    "DINOv2": ("Dinov2ForImageClassification", VIT, False),
    "DINOv2 with registers": ("Dinov2WithRegistersForImageClassification", VIT, False),
    "I-JEPA": ("IJepaForImageClassification", VIT, False),
    "Swin": ("SwinForImageClassification", SWIN, False),
    "SwinV2": ("Swinv2ForImageClassification", SWIN, False),
    "FocalNet": (
        "FocalNetForImageClassification",
        dict(
            image_size=32,
            patch_size=4,
            embed_dim=16,
            hidden_sizes=[16, 32],
            depths=[1, 1],
            focal_levels=[2, 2],
            focal_windows=[3, 3],
        ),
        False,
    ),
    "Hiera": (
        "HieraForImageClassification",
        dict(
            embed_dim=16,
            image_size=[32, 32],
            patch_size=[7, 7],
            patch_stride=[4, 4],
            patch_padding=[3, 3],
            depths=[1, 1],
            num_heads=[1, 2],
            masked_unit_size=[4, 4],
            query_stride=[2, 2],
            num_query_pool=1,
        ),
        False,
    ),
    "PVT": (
        "PvtForImageClassification",
        dict(
            image_size=32,
            num_encoder_blocks=2,
            depths=[1, 1],
            sequence_reduction_ratios=[2, 1],
            hidden_sizes=[16, 32],
            patch_sizes=[4, 2],
            strides=[4, 2],
            num_attention_heads=[2, 4],
            mlp_ratios=[2, 2],
        ),
        False,
    ),
    "CvT": (
        "CvtForImageClassification",
        dict(
            patch_sizes=[7, 3],
            patch_stride=[4, 2],
            patch_padding=[2, 1],
            embed_dim=[16, 32],
            num_heads=[2, 4],
            depth=[1, 2],
            mlp_ratio=[2.0, 2.0],
            attention_drop_rate=[0.0, 0.0],
            drop_rate=[0.0, 0.0],
            drop_path_rate=[0.0, 0.0],
            qkv_bias=[True, True],
            cls_token=[False, True],
            qkv_projection_method=["dw_bn", "dw_bn"],
            kernel_qkv=[3, 3],
            padding_kv=[1, 1],
            stride_kv=[2, 2],
            padding_q=[1, 1],
            stride_q=[1, 1],
        ),
        True,
    ),
    "ConvNeXt": ("ConvNextForImageClassification", dict(hidden_sizes=[8, 16], depths=[2, 2], num_stages=2), False),
    "ConvNeXtV2": ("ConvNextV2ForImageClassification", dict(hidden_sizes=[8, 16], depths=[2, 2], num_stages=2), False),
    "PoolFormer": (
        "PoolFormerForImageClassification",
        dict(
            num_encoder_blocks=2,
            depths=[2, 2],
            hidden_sizes=[8, 16],
            patch_sizes=[7, 3],
            strides=[4, 2],
            padding=[2, 1],
        ),
        False,
    ),
    "ResNet": ("ResNetForImageClassification", STAGES, True),
    "RegNet": (
        "RegNetForImageClassification",
        dict(embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], groups_width=8),
        True,
    ),
    "BiT": (
        "BitForImageClassification",
        dict(embedding_size=8, hidden_sizes=[32, 64], depths=[1, 1], num_groups=4),
        False,
    ),
    "MobileNetV1": ("MobileNetV1ForImageClassification", dict(depth_multiplier=0.25, image_size=32), True),
    "MobileNetV2": ("MobileNetV2ForImageClassification", dict(depth_multiplier=0.25, image_size=32), True),
    "EfficientNet": (
        "EfficientNetForImageClassification",
        dict(
            image_size=32,
            hidden_dim=1280,
            in_channels=[32, 8],
            out_channels=[8, 16],
            kernel_sizes=[3, 3],
            strides=[1, 2],
            num_block_repeats=[1, 2],
            expand_ratios=[1, 4],
            width_coefficient=1.0,
            depth_coefficient=1.0,
            depthwise_padding=[],
        ),
        True,
    ),
    "MobileViT": (
        "MobileViTForImageClassification",
        dict(
            image_size=32,
            patch_size=2,
            hidden_sizes=[16, 24, 32],
            neck_hidden_sizes=[8, 8, 8, 16, 16, 16, 32],
            num_attention_heads=4,
            mlp_ratio=2.0,
        ),
        True,
    ),
    "LeViT": (
        "LevitForImageClassification",
        dict(
            image_size=32,
            hidden_sizes=[16, 32, 32],
            num_attention_heads=[2, 4, 4],
            depths=[1, 1, 1],
            key_dim=[8, 8, 8],
            patch_size=16,
        ),
        True,
    ),
    "SwiftFormer": (
        "SwiftFormerForImageClassification",
        dict(image_size=32, depths=[1, 1, 1, 1], embed_dims=[8, 8, 16, 16]),
        True,
    ),
    "SegFormer, classification": ("SegformerForImageClassification", PYRAMID, False),
}

for _name, (_kind, _config, _batch_norm) in CLASSIFIERS.items():
    add(
        _name,
        "transformers",
        lambda kind=_kind, config=_config: image_classifier(transformer(kind, num_labels=CLASSES, **config)),
        whole=_batch_norm,
    )


def _segmenter() -> Task:
    """A class for every pixel; those of class 255 do not count."""
    model = transformer("SegformerForSemanticSegmentation", num_labels=CLASSES, **PYRAMID)
    labels = torch.randint(CLASSES, (SAMPLES, 8, 8))
    for i in range(SAMPLES):
        labels[i, : i % 6] = 255

    def loss(output, target):
        return F.cross_entropy(output.logits, target, ignore_index=255)

    return Task(model, {"pixel_values": torch.randn(SAMPLES, 3, 32, 32)}, loss, labels)


def _depth(kind: str, **config) -> Task:
    images = torch.randn(SAMPLES, 3, 32, 32)
    return Task(
        transformer(kind, **config),
        {"pixel_values": images},
        lambda output, depth: F.l1_loss(output.predicted_depth, depth),
        torch.rand(SAMPLES, 32, 32),
    )


def _upscaler() -> Task:
    model = transformer(
        "Swin2SRForImageSuperResolution",
        image_size=16,
        patch_size=1,
        embed_dim=16,
        depths=[2],
        num_heads=[2],
        window_size=4,
        upscale=2,
        upsampler="pixelshuffledirect",
    )
    return Task(
        model,
        {"pixel_values": torch.rand(SAMPLES, 3, 16, 16)},
        lambda output, target: F.mse_loss(output.reconstruction, target),
        torch.rand(SAMPLES, 3, 32, 32),
    )


def _masked_autoencoder() -> Task:
    """Draws which patches it hides."""
    model = transformer(
        "ViTMAEForPreTraining",
        decoder_hidden_size=16,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=16,
        **VIT
    )
    return Task(model, {"pixel_values": torch.randn(SAMPLES, 3, 32, 32)}, None)


def _video(kind: str, **config) -> Task:
    model = transformer(kind, num_frames=4, num_labels=CLASSES, **{**VIT, **config})
    return Task(
        model, {"pixel_values": torch.randn(SAMPLES, 4, 3, 32, 32)}, class_loss, torch.randint(CLASSES, (SAMPLES,))
    )


def _promptable() -> Task:
    """Segment Anything: points of each image, three masks."""
    tower = dict(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        output_channels=16,
        num_pos_feats=8,
        mlp_dim=48,
        window_size=2,
        global_attn_indexes=[1],
    )
    prompt = dict(hidden_size=16, image_size=32, patch_size=8, mask_input_channels=4)
    mask = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, mlp_dim=16, iou_head_hidden_dim=16)
    model = transformer("SamModel", vision_config=tower, prompt_encoder_config=prompt, mask_decoder_config=mask)
    inputs = dict(
        pixel_values=torch.randn(SAMPLES, 3, 32, 32),
        input_points=torch.rand(SAMPLES, 1, 2, 2) * 31,
        input_labels=torch.ones(SAMPLES, 1, 2, dtype=torch.long),
    )

    def loss(output, target):
        return F.binary_cross_entropy_with_logits(output.pred_masks[:, 0], target)

    return Task(model, inputs, loss, torch.randint(2, (SAMPLES, 3, 16, 16)).float())


def _detector() -> Task:
    """YOLOS: a class and a box for each of five queries, matched beforehand."""
    model = transformer(
        "YolosForObjectDetection", num_detection_tokens=5, num_labels=CLASSES, **{**VIT, "image_size": [32, 32]}
    )

    def loss(output, target):
        classes = F.cross_entropy(output.logits.flatten(0, 1), target["classes"].flatten())
        return classes + 5 * F.l1_loss(output.pred_boxes, target["boxes"])

    target = dict(classes=torch.randint(CLASSES, (SAMPLES, 5)), boxes=torch.rand(SAMPLES, 5, 4))
    return Task(model, {"pixel_values": torch.randn(SAMPLES, 3, 32, 32)}, loss, target)


DPT = dict(
    **{**VIT, "num_hidden_layers": 4, "patch_size": 16},
    is_hybrid=False,
    backbone_out_indices=[0, 1, 2, 3],
    neck_hidden_sizes=[8, 8, 16, 16],
    fusion_hidden_size=8,
    reassemble_factors=[4, 2, 1, 0.5],
    head_in_index=-1
)
add("SegFormer", "transformers", _segmenter)
add("DPT", "transformers", lambda: _depth("DPTForDepthEstimation", **DPT))
add(
    "GLPN",
    "transformers",
    lambda: _depth(
        "GLPNForDepthEstimation",
        **{
            **PYRAMID,
            "num_encoder_blocks": 4,
            "depths": [1] * 4,
            "sr_ratios": [2, 1, 1, 1],
            "hidden_sizes": [8, 16, 16, 32],
            "patch_sizes": [7, 3, 3, 3],
            "strides": [4, 2, 2, 2],
            "num_attention_heads": [1, 2, 2, 4],
            "mlp_ratios": [2] * 4,
        }
    ),
    whole=True,
)
add("Swin2SR", "transformers", _upscaler)
add(
    "ViT-MAE",
    "transformers",
    _masked_autoencoder,
    refusal="it draws with torch.rand which patches to hide, and no seed makes that independent of the plan",
)
add("VideoMAE, classification", "transformers", lambda: _video("VideoMAEForVideoClassification", tubelet_size=2))
add("TimeSformer", "transformers", lambda: _video("TimesformerForVideoClassification"))
add("ViViT", "transformers", lambda: _video("VivitForVideoClassification", tubelet_size=[2, 8, 8]))
add("SAM", "transformers", _promptable)
add("YOLOS", "transformers", _detector)
