"""Denoisers, autoencoders and their companions of diffusers."""

import torch

from .configurations import diffuser
from .entry import SAMPLES, Task, add
from .tasks import CLASSES, sample_loss

BLOCKS = dict(block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4)
CROSS = dict(
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=16,
    attention_head_dim=4,
    **BLOCKS,
)
ATTENTION = dict(num_attention_heads=2, attention_head_dim=8, num_layers=2)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(SAMPLES, *shape)


def steps() -> torch.Tensor:
    return torch.randint(1000, (SAMPLES,))


def _denoiser(kind: str, config: dict, shape: tuple, **inputs) -> Task:
    """Finds the noise in what it is given, with whatever else it reads."""
    return Task(diffuser(kind, **config), inputs, sample_loss, noise(*shape))


def _unet() -> Task:
    config = dict(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
        **BLOCKS,
    )
    return _denoiser("UNet2DModel", config, (3, 16, 16), sample=noise(3, 16, 16), timestep=steps())


def _conditional() -> Task:
    config = dict(sample_size=8, in_channels=4, out_channels=4, **CROSS)
    return _denoiser(
        "UNet2DConditionModel",
        config,
        (4, 8, 8),
        sample=noise(4, 8, 8),
        timestep=steps(),
        encoder_hidden_states=noise(6, 16),
    )


def _unet_1d() -> Task:
    config = dict(
        sample_size=16,
        in_channels=2,
        out_channels=2,
        block_out_channels=(8, 16),
        down_block_types=("DownResnetBlock1D", "DownResnetBlock1D"),
        up_block_types=("UpResnetBlock1D",),
        mid_block_type="MidResTemporalBlock1D",
        out_block_type="OutConv1DBlock",
        norm_num_groups=4,
        layers_per_block=1,
        act_fn="mish",
        time_embedding_type="positional",
        use_timestep_embedding=True,
    )
    return _denoiser("UNet1DModel", config, (2, 16), sample=noise(2, 16), timestep=steps())


def _unet_3d() -> Task:
    config = dict(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
        cross_attention_dim=16,
        attention_head_dim=4,
        **BLOCKS,
    )
    return _denoiser(
        "UNet3DConditionModel",
        config,
        (4, 2, 8, 8),
        sample=noise(4, 2, 8, 8),
        timestep=steps(),
        encoder_hidden_states=noise(6, 16),
    )


def _dit() -> Task:
    config = dict(
        **ATTENTION,
        in_channels=4,
        out_channels=4,
        sample_size=8,
        patch_size=2,
        num_embeds_ada_norm=1000,
        norm_num_groups=4,
    )
    return _denoiser(
        "DiTTransformer2DModel",
        config,
        (4, 8, 8),
        hidden_states=noise(4, 8, 8),
        timestep=steps(),
        class_labels=torch.randint(CLASSES, (SAMPLES,)),
    )


def _sd3() -> Task:
    config = dict(
        **ATTENTION,
        sample_size=8,
        patch_size=2,
        in_channels=4,
        out_channels=4,
        joint_attention_dim=16,
        caption_projection_dim=16,
        pooled_projection_dim=16,
        pos_embed_max_size=8,
    )
    return _denoiser(
        "SD3Transformer2DModel",
        config,
        (4, 8, 8),
        hidden_states=noise(4, 8, 8),
        encoder_hidden_states=noise(6, 16),
        pooled_projections=noise(16),
        timestep=steps(),
    )


class _Flux(torch.nn.Module):
    """Flux with the ids of places, which are the same for all samples, as buffers."""

    def __init__(self):
        super().__init__()
        self.flux = diffuser(
            "FluxTransformer2DModel",
            patch_size=1,
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=8,
            num_attention_heads=2,
            joint_attention_dim=16,
            pooled_projection_dim=16,
            axes_dims_rope=(2, 2, 4),
        )
        self.register_buffer("text_places", torch.zeros(6, 3))
        self.register_buffer(
            "image_places",
            torch.cat([torch.zeros(16, 1), torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))], 1),
        )

    def forward(self, latents, text, pooled, timestep):
        return self.flux(latents, text, pooled, timestep, self.image_places, self.text_places)


def _flux() -> Task:
    return Task(
        _Flux(),
        dict(latents=noise(16, 4), text=noise(6, 16), pooled=noise(16), timestep=torch.rand(SAMPLES)),
        sample_loss,
        noise(16, 4),
    )


class _QwenImage(torch.nn.Module):
    """Qwen-Image for images of 4 x 4 patches; its rotary positions are complex numbers."""

    def __init__(self):
        super().__init__()
        self.transformer = diffuser(
            "QwenImageTransformer2DModel",
            patch_size=1,
            in_channels=4,
            out_channels=4,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=2,
            joint_attention_dim=16,
            axes_dims_rope=(2, 2, 4),
        )

    def forward(self, latents, text, timestep):
        return self.transformer(latents, text, None, timestep, img_shapes=[[(1, 4, 4)]])


def _qwen_image() -> Task:
    inputs = dict(latents=noise(16, 4), text=noise(6, 16), timestep=torch.rand(SAMPLES))
    return Task(_QwenImage(), inputs, sample_loss, noise(16, 4))


def _pixart() -> Task:
    config = dict(
        **ATTENTION,
        in_channels=4,
        out_channels=4,
        sample_size=8,
        patch_size=2,
        cross_attention_dim=16,
        caption_channels=16,
        num_embeds_ada_norm=1000,
        norm_num_groups=4,
        use_additional_conditions=False,
    )
    return _denoiser(
        "PixArtTransformer2DModel",
        config,
        (4, 8, 8),
        hidden_states=noise(4, 8, 8),
        encoder_hidden_states=noise(6, 16),
        timestep=steps(),
    )


def _aura_flow() -> Task:
    config = dict(
        sample_size=8,
        patch_size=2,
        in_channels=4,
        out_channels=4,
        num_mmdit_layers=1,
        num_single_dit_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=16,
        caption_projection_dim=16,
        pos_embed_max_size=64,
    )
    return _denoiser(
        "AuraFlowTransformer2DModel",
        config,
        (4, 8, 8),
        hidden_states=noise(4, 8, 8),
        encoder_hidden_states=noise(6, 16),
        timestep=torch.rand(SAMPLES),
    )


def _sana() -> Task:
    config = dict(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=2,
        num_cross_attention_heads=2,
        cross_attention_head_dim=8,
        cross_attention_dim=16,
        caption_channels=16,
        sample_size=8,
        patch_size=1,
    )
    return _denoiser(
        "SanaTransformer2DModel",
        config,
        (4, 8, 8),
        hidden_states=noise(4, 8, 8),
        encoder_hidden_states=noise(6, 16),
        timestep=steps(),
    )


def _cogview() -> Task:
    config = dict(
        patch_size=2,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        out_channels=4,
        text_embed_dim=16,
        time_embed_dim=16,
        condition_dim=8,
        pos_embed_max_size=8,
        sample_size=8,
    )
    sizes = torch.tensor([[64.0, 64.0]]).expand(SAMPLES, 2).contiguous()
    return _denoiser(
        "CogView3PlusTransformer2DModel",
        config,
        (4, 8, 8),
        hidden_states=noise(4, 8, 8),
        encoder_hidden_states=noise(6, 16),
        timestep=steps(),
        original_size=sizes,
        target_size=sizes.clone(),
        crop_coords=torch.zeros(SAMPLES, 2),
    )


def _wan() -> Task:
    config = dict(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        text_dim=16,
        freq_dim=16,
        ffn_dim=32,
        num_layers=2,
        rope_max_seq_len=32,
    )
    return _denoiser(
        "WanTransformer3DModel",
        config,
        (4, 2, 8, 8),
        hidden_states=noise(4, 2, 8, 8),
        timestep=steps(),
        encoder_hidden_states=noise(6, 16),
    )


def _ltx() -> Task:
    """Video latents [time x height x width, channels] in a row."""

    class Video(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = diffuser(
                "LTXVideoTransformer3DModel",
                in_channels=4,
                out_channels=4,
                num_attention_heads=2,
                attention_head_dim=8,
                cross_attention_dim=16,
                num_layers=2,
                caption_channels=16,
            )

        def forward(self, latents, text, timestep, mask):
            return self.model(latents, text, timestep, mask, num_frames=2, height=4, width=4)

    return Task(
        Video(),
        dict(latents=noise(32, 4), text=noise(6, 16), timestep=steps(), mask=torch.ones(SAMPLES, 6, dtype=torch.long)),
        sample_loss,
        noise(32, 4),
    )


class _Controlled(torch.nn.Module):
    """A frozen U-Net, steered by a ControlNet that trains."""

    def __init__(self):
        super().__init__()
        self.unet = diffuser(
            "UNet2DConditionModel", sample_size=8, in_channels=4, out_channels=4, **CROSS
        ).requires_grad_(False)
        self.control = diffuser(
            "ControlNetModel",
            in_channels=4,
            down_block_types=CROSS["down_block_types"],
            cross_attention_dim=16,
            attention_head_dim=4,
            conditioning_embedding_out_channels=(4, 8),
            **BLOCKS,
        )
        for layer in [*self.control.controlnet_down_blocks, self.control.controlnet_mid_block]:
            torch.nn.init.normal_(layer.weight, std=0.1)

    def forward(self, latents, timestep, text, hint):
        down, middle = self.control(latents, timestep, text, controlnet_cond=hint, return_dict=False)
        return self.unet(
            latents, timestep, text, down_block_additional_residuals=down, mid_block_additional_residual=middle
        )


def _control() -> Task:
    return Task(
        _Controlled(),
        dict(latents=noise(4, 8, 8), timestep=steps(), text=noise(6, 16), hint=noise(3, 16, 16)),
        sample_loss,
        noise(4, 8, 8),
    )


for _name, _build in {
    "UNet2D": _unet,
    "UNet2D, conditional": _conditional,
    "UNet1D": _unet_1d,
    "UNet3D": _unet_3d,
    "Stable Diffusion 3": _sd3,
    "Flux": _flux,
    "PixArt": _pixart,
    "Qwen-Image": _qwen_image,
    "AuraFlow": _aura_flow,
    "Sana": _sana,
    "CogView3+": _cogview,
    "Wan (video)": _wan,
    "LTX (video)": _ltx,
    "ControlNet": _control,
}.items():
    add(_name, "diffusers", _build)
add(
    "DiT",
    "diffusers",
    _dit,
    refusal="it draws with torch.rand which labels to leave out, whatever its configuration says",
)
