"""Language models of transformers that predict the next token."""

from .configurations import TEXT, text_transformer, transformer
from .entry import add
from .tasks import language_model

GROUPED = dict(num_key_value_heads=2)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
LATENT = dict(
    q_lora_rank=16,
    kv_lora_rank=8,
    qk_rope_head_dim=4,
    qk_nope_head_dim=4,
    v_head_dim=8,
    n_routed_experts=4,
    num_experts_per_tok=2,
    n_group=1,
    topk_group=1,
    n_shared_experts=1,
    moe_intermediate_size=16,
    first_k_dense_replace=1,
    topk_method="greedy",
)
STATE_SPACE = dict(state_size=4, expand=2, conv_kernel=3, time_step_rank=4)

# Name -> class, what its configuration has of its own.
ATTENTION = {
    "GPT2": ("GPT2LMHeadModel", dict(n_embd=32, n_layer=2, n_head=4, n_positions=32)),
    "Llama": ("LlamaForCausalLM", GROUPED),
    "Qwen2": ("Qwen2ForCausalLM", GROUPED),
    "Qwen3": ("Qwen3ForCausalLM", dict(**GROUPED, head_dim=8)),
    "Gemma": ("GemmaForCausalLM", dict(**GROUPED, head_dim=8)),
    "Gemma2": ("Gemma2ForCausalLM", dict(**GROUPED, head_dim=8, sliding_window=6)),
    "Gemma3": ("Gemma3ForCausalLM", dict(**GROUPED, head_dim=8, sliding_window=6)),
    "Mistral": ("MistralForCausalLM", dict(**GROUPED, sliding_window=6)),
    "Phi": ("PhiForCausalLM", {}),
    "Phi3": ("Phi3ForCausalLM", GROUPED),
    "Falcon": ("FalconForCausalLM", dict(new_decoder_architecture=False)),
    "Falcon with ALiBi": ("FalconForCausalLM", dict(alibi=True)),
    "GPT-NeoX": ("GPTNeoXForCausalLM", {}),
    "GPT-Neo": (
        "GPTNeoForCausalLM",
        dict(num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=6),
    ),
    "GPT-J": ("GPTJForCausalLM", dict(n_embd=32, n_layer=2, n_head=4, n_positions=32, rotary_dim=4)),
    "GPT-BigCode": ("GPTBigCodeForCausalLM", dict(n_embd=32, n_layer=2, n_head=4, n_positions=32)),
    "CodeGen": ("CodeGenForCausalLM", dict(n_embd=32, n_layer=2, n_head=4, n_positions=32, n_ctx=32, rotary_dim=4)),
    "OPT": ("OPTForCausalLM", dict(ffn_dim=48, word_embed_proj_dim=32)),
    "Bloom": ("BloomForCausalLM", dict(n_layer=2, n_head=4)),
    "MPT": ("MptForCausalLM", dict(d_model=32, n_heads=4, n_layers=2, max_seq_len=32)),
    "StableLM": ("StableLmForCausalLM", dict(num_key_value_heads=4)),
    "OLMo": ("OlmoForCausalLM", {}),
    "OLMo2": ("Olmo2ForCausalLM", {}),
    "Cohere": ("CohereForCausalLM", GROUPED),
    "Granite": ("GraniteForCausalLM", GROUPED),
    "Starcoder2": ("Starcoder2ForCausalLM", GROUPED),
    "Nemotron": ("NemotronForCausalLM", GROUPED),
    "GLM": ("GlmForCausalLM", dict(**GROUPED, head_dim=8)),
    "SmolLM3": ("SmolLM3ForCausalLM", GROUPED),
    "Persimmon": ("PersimmonForCausalLM", {}),
    "BioGPT": ("BioGptForCausalLM", {}),
    "XGLM": ("XGLMForCausalLM", dict(d_model=32, ffn_dim=48, num_layers=2, attention_heads=4)),
    "CTRL": ("CTRLLMHeadModel", dict(n_embd=32, n_layer=2, n_head=4, dff=48, n_positions=32)),
    "GPT (2018)": ("OpenAIGPTLMHeadModel", dict(n_embd=32, n_layer=2, n_head=4, n_positions=32)),
}
MIXTURES = {
    "Mixtral": ("MixtralForCausalLM", dict(**GROUPED, num_local_experts=4, num_experts_per_tok=2)),
    "Qwen2-MoE": ("Qwen2MoeForCausalLM", dict(**GROUPED, **EXPERTS, shared_expert_intermediate_size=16)),
    "Qwen3-MoE": ("Qwen3MoeForCausalLM", dict(**GROUPED, **EXPERTS, head_dim=8)),
    "OLMoE": ("OlmoeForCausalLM", dict(num_experts=4, num_experts_per_tok=2)),
    "Phi-MoE": ("PhimoeForCausalLM", dict(**GROUPED, num_local_experts=4)),
    "Granite-MoE": ("GraniteMoeForCausalLM", dict(**GROUPED, num_local_experts=4, num_experts_per_tok=2)),
    "Llama 4": (
        "Llama4ForCausalLM",
        dict(**GROUPED, head_dim=8, num_local_experts=4, intermediate_size_mlp=48, attention_chunk_size=8),
    ),
    "DeepSeek-V2": ("DeepseekV2ForCausalLM", LATENT),
    "DeepSeek-V3": ("DeepseekV3ForCausalLM", LATENT),
}
RECURRENT = {
    "Mamba": ("MambaForCausalLM", STATE_SPACE),
    "Falcon-Mamba": ("FalconMambaForCausalLM", STATE_SPACE),
    "Mamba2": (
        "Mamba2ForCausalLM",
        dict(state_size=4, expand=2, conv_kernel=3, num_heads=8, head_dim=8, n_groups=1, chunk_size=4),
    ),
    "Jamba": (
        "JambaForCausalLM",
        dict(**GROUPED, num_experts=2, attn_layer_period=2, attn_layer_offset=1, mamba_d_state=4, mamba_dt_rank=4),
    ),
    "Bamba": (
        "BambaForCausalLM",
        dict(**GROUPED, attn_layer_indices=[1], mamba_n_heads=8, mamba_d_head=8, mamba_d_state=4, mamba_chunk_size=4),
    ),
    "Zamba2": (
        "Zamba2ForCausalLM",
        dict(
            mamba_d_state=4,
            mamba_ngroups=1,
            n_mamba_heads=8,
            chunk_size=4,
            layers_block_type=["mamba", "hybrid"],
            num_mem_blocks=1,
        ),
    ),
    "RWKV": ("RwkvForCausalLM", dict(attention_hidden_size=32, context_length=32)),
    "LFM2": ("Lfm2ForCausalLM", dict(**GROUPED, layer_types=["conv", "full_attention"], conv_L_cache=3)),
}


def _add(name: str, kind: str, config: dict, **properties) -> None:
    add(name, "transformers", lambda: language_model(text_transformer(kind, **config)), **properties)


REFUSED = {"Phi-MoE": "its router draws random numbers, and estimates its gradient instead of deriving it"}

for _name, (_kind, _config) in (ATTENTION | MIXTURES | RECURRENT).items():
    _add(_name, _kind, _config, refusal=REFUSED.get(_name, ""))

add(
    "RecurrentGemma",
    "transformers",
    lambda: language_model(
        text_transformer(
            "RecurrentGemmaForCausalLM",
            lru_width=32,
            attention_window_size=6,
            conv1d_width=3,
            num_key_value_heads=1,
            block_types=["recurrent", "attention"],
        )
    ),
    refusal="its recurrence has a backward pass of its own (torch.autograd.Function)",
)
add(
    "Llama, attention mask",
    "transformers",
    lambda: language_model(text_transformer("LlamaForCausalLM", **GROUPED), mask=True),
)
add(
    "GPT2, attention mask",
    "transformers",
    lambda: language_model(transformer("GPT2LMHeadModel", **{**TEXT, **ATTENTION["GPT2"][1]}), mask=True),
)
