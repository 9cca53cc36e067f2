"""The recorded kernels' own parameters, by name and type, as vLLM 0.24's sources declare them.

Of a Triton kernel they are those that are left when constants are compiled in, and two for memory that Triton itself
may want. The recording must agree with the sizes; the names are what the tables of this package refer to.
"""

from __future__ import annotations

from typing import Final

from kern.recorded.signatures import Signature

_TRITON: Final = " global_scratch profile_scratch"

SIGNATURES: Final = (
    Signature.of(
        "norm",
        "_ZN4vllm15rms_norm_kernel",
        "_ZN4vllm15rms_norm_kernelIN3c108BFloat16E",
        "out input input_stride_d2:i64 input_stride_d3:i64 input_stride_d4:i64 input_shape_d2:i64 input_shape_d3:i64 "
        "weight epsilon:f32 num_tokens:i32 hidden_size:i32",
    ),
    Signature.of(
        "rotary",
        "_ZN4vllm23rotary_embedding_kernel",
        "_ZN4vllm23rotary_embedding_kernelIN3c108BFloat16ES2_Lb1E",  # queries and table in bf16, GPT-NeoX's halves
        "positions query key cos_sin_cache rot_dim:i32 query_stride:i64 key_stride:i64 head_stride:i64 num_heads:i32 "
        "num_kv_heads:i32 head_size:i32 rope_dim_offset:i64 inverse:u8",
    ),
    Signature.of(
        "cache",
        "reshape_and_cache_kernel_flash",
        "reshape_and_cache_kernel_flash",
        "key value key_cache value_cache slot_mapping k_scale v_scale key_stride:i64 value_stride:i64 block_stride:i64 "
        "head_stride:i64 dim_stride_k:i64 dim_stride_v:i64 page_stride:i64" + _TRITON,
    ),
    Signature.of(
        "attention",
        "kernel_unified_attention",
        "kernel_unified_attention",
        "output query key_cache value_cache block_tables seq_lens scale:f32 k_scale v_scale out_scale:f32 softcap:i32 "
        "block_table_stride:i64 query_stride_0:i64 query_stride_1:i64 output_stride_0:i64 output_stride_1:i64 "
        "qq_bias_stride_0:i64 stride_k_cache_0:i64 stride_k_cache_1:i64 stride_k_cache_2:i64 stride_v_cache_0:i64 "
        "stride_v_cache_1:i64 stride_v_cache_2:i64 query_start_len num_seqs:i32 segm_output segm_max segm_expsum "
        "k_scale_cache v_scale_cache stride_ks_blk:i64 stride_ks_slot:i64 stride_ks_head:i64 stride_vs_blk:i64 "
        "stride_vs_slot:i64 stride_vs_head:i64" + _TRITON,
    ),
    Signature.of(
        "reduce",
        "reduce_segments",
        "reduce_segments",
        # One sequence: their number is compiled in, as Triton does with every 1.
        "output segm_output segm_max segm_expsum seq_lens out_scale_inv:f32 output_stride_0:i64 output_stride_1:i64 "
        "block_table_stride:i64 query_start_len" + _TRITON,
    ),
    Signature.of(
        "add_norm",
        "_ZN4vllm25fused_add_rms_norm_kernel",
        "_ZN4vllm25fused_add_rms_norm_kernelIN3c108BFloat16E",
        "input input_stride:i64 residual weight epsilon:f32 num_tokens:i32 hidden_size:i32",
    ),
    Signature.of(
        "activation",
        "_ZN4vllm18act_and_mul_kernel",
        "_ZN4vllm18act_and_mul_kernelIN3c108BFloat16E14__nv_bfloat162XadL_ZNS_11silu_kernelIS2_EET_RKS5_fEEX"
        "adL_ZNS_18packed_silu_kernelIS3_EES5_S7_fEELb1E",  # silu of the first half, times the second
        "out input d:i32 limit:f32 alpha:f32 beta:f32",
    ),
)
"""The kernels that show a pass, in the order in which it launches them first."""
