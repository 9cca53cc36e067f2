"""Mangled names are made readable, whatever they contain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern.mining.symbols import WIDTH, readable, short


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("plain_kernel", "plain_kernel"),
        ("_Z4workPfi", "work"),
        ("_ZN2at6native6mbtopk4fillIjjEEvPT_S3_T0_", "at::native::mbtopk::fill<unsigned, unsigned>"),
        (
            "_ZN4vllm15rms_norm_kernelIN3c108BFloat16ELi8ELi3ELb1EEEvPT_",
            "vllm::rms_norm_kernel<c10::BFloat16, 8, 3, true>",
        ),
        (
            "_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_23direct_copyE",
            "at::native::unrolled_elementwise_kernel<…>",
        ),
        ("_ZN54_GLOBAL__N__d8ceb000_21_DistributionNormal_cu_0c5b6e854workE", "work"),
        ("_Z4workILin3EEvv", "work<-3>"),
        ("_ZN999work", "_ZN999work"),
        ("_Z", "_Z"),
        ("_Z4workI" + "L" * 60_000, "work<…>"),
        ("_ZN²work", "_ZN²work"),
    ],
)
def test_names(symbol: str, name: str) -> None:
    assert readable(symbol) == name


@given(st.text(alphabet="_ZNEILSTKP0123456789ab", max_size=60))
def test_any_text_has_a_name(text: str) -> None:
    assert readable("_Z" + text)
    assert 0 < len(short("_Z" + text)) <= WIDTH
