"""Autoencoders of images, of diffusers."""

import torch.nn.functional as F

from .configurations import diffuser
from .diffusion import BLOCKS, noise
from .entry import Task, add
from .tasks import sample_loss

CONVOLUTIONAL = dict(
    down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4
)


def _autoencoder(kind: str, **config) -> Task:
    """Reconstructs its input; nothing is drawn (sample_posterior is False by default)."""
    return Task(diffuser(kind, **config), {"sample": noise(3, 16, 16)}, sample_loss, noise(3, 16, 16))


def _vq() -> Task:
    """Its outputs go through the nearest vectors of a codebook, with straight-through gradients."""
    config = dict(
        in_channels=3,
        out_channels=3,
        latent_channels=4,
        num_vq_embeddings=16,
        vq_embed_dim=4,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        **BLOCKS,
    )

    def loss(output, target):
        return F.mse_loss(output.sample, target) + output.commit_loss.mean()

    return Task(diffuser("VQModel", **config), dict(sample=noise(3, 16, 16)), loss, noise(3, 16, 16))


add("VQ autoencoder", "diffusers", _vq)
add(
    "Variational autoencoder",
    "diffusers",
    lambda: _autoencoder("AutoencoderKL", **CONVOLUTIONAL, **BLOCKS),
)
add(
    "Tiny autoencoder",
    "diffusers",
    lambda: _autoencoder(
        "AutoencoderTiny",
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        num_encoder_blocks=(1, 1),
        num_decoder_blocks=(1, 1),
    ),
)
