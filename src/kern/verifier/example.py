"""The example manifest: small, valid, with one of everything; the examples of all codes are edits of it."""

from __future__ import annotations

from kern.manifest.diagnostics import Example

BASE = """\
{
 "meta": {"version": 2, "model": "example"},
 "symbols": {
  "rows": {"max": 64},
  "start": {"min": 0, "max": 4095}
 },
 "states": {
  "history": {"bytes_per_token": 512, "granule": 16}
 },
 "buffers": {
  "signal": {"dtype": "bf16", "shape": ["rows", 64], "class": "input"},
  "filter": {"dtype": "bf16", "shape": [128, 64], "class": "weight"},
  "mixed": {"dtype": "f32", "shape": ["rows", 128], "class": "workspace"},
  "scaled": {"dtype": "f32", "shape": ["rows", 128], "class": "workspace"},
  "total": {"dtype": "f32", "shape": [128], "class": "carry"},
  "peak": {"dtype": "f32", "shape": [1], "class": "output"}
 },
 "kernels": {
  "product": {
   "params": ["out buffer<f32>", "in buffer<bf16>", "in buffer<bf16>", "i32", "i32", "i32"],
   "impl": {
    "steps": [
     {"symbol": "extern:cublaslt_bf16_tn_f32",
      "params": ["out buffer<f32>", "in buffer<bf16>", "in buffer<bf16>", "i32", "i32", "i32"],
      "block": [1, 1, 1], "grid": [1, 1, 1],
      "args": [{"arg": 0}, {"arg": 1}, {"arg": 2}, {"arg": 3}, {"arg": 4}, {"arg": 5}]}
    ]
   }
  },
  "scale": {
   "params": ["out buffer<f32>", "in buffer<f32> align 16", "f32"],
   "impl": {
    "steps": [
     {"symbol": "scale_f32",
      "params": ["out buffer<f32> align 16", "in buffer<f32>", "f32", "i32"],
      "block": [128, 1, 1], "grid": [{"sym": "rows"}, 1, 1],
      "args": [{"arg": 0}, {"arg": 1}, {"arg": 2}, {"i32": 128}]}
    ]
   }
  },
  "record": {
   "params": ["in buffer<f32>", "inout ptr align 16", "i32", "u32"],
   "impl": {
    "steps": [
     {"symbol": "record_f32",
      "params": ["in buffer<f32>", "inout ptr", "i32", "u32"],
      "block": [256, 1, 1], "grid": [{"ceil_div": [{"mul": [{"sym": "rows"}, 128]}, 256]}, 1, 1],
      "args": [{"arg": 0}, {"arg": 1}, {"arg": 2}, {"arg": 3}]}
    ]
   }
  },
  "summarize": {
   "params": ["out buffer<f32>", "inout buffer<f32>", "in buffer<f32>", "i32"],
   "impl": {
    "scratch": {
     "part": {"dtype": "f32", "shape": ["rows", 4]},
     "count": {"dtype": "i32", "shape": [8], "keep": true}
    },
    "steps": [
     {"symbol": "partial_max", "cubin": "summary.cubin",
      "params": ["out buffer<f32>", "in buffer<f32>", "i32"],
      "block": [128, 1, 1], "grid": [{"sym": "rows"}, 4, 1], "shared_mem": 512,
      "args": [{"scratch": "part"}, {"arg": 2}, {"arg": 3}]},
     {"symbol": "final_max", "cubin": "summary.cubin",
      "params": ["out buffer<f32>", "inout buffer<f32>", "in buffer<f32>", "inout buffer<i32>"],
      "block": [64, 1, 1], "grid": [4, 1, 1],
      "args": [{"arg": 0}, {"arg": 1}, {"scratch": "part"}, {"scratch": "count"}]}
    ]
   }
  }
 },
 "programs": {
  "fill": {
   "dispatches": [
    {"kernel": "product", "args": [{"buf": "mixed"}, {"buf": "signal"}, {"buf": "filter"}, {"sym": "rows"}, {"i32": 128}, {"i32": 64}]},
    {"kernel": "scale", "args": [{"buf": "scaled"}, {"buf": "mixed"}, {"f32": 0.5}]},
    {"kernel": "record", "args": [{"buf": "scaled"}, {"state": "history"}, {"sym": "start"}, {"expr": {"mul": [{"sym": "rows"}, 128]}}]}
   ]
  },
  "step": {
   "symbols": {"rows": {"max": 1}},
   "dispatches": [
    {"kernel": "product", "args": [{"buf": "mixed"}, {"buf": "signal"}, {"buf": "filter"}, {"sym": "rows"}, {"i32": 128}, {"i32": 64}]},
    {"kernel": "scale", "args": [{"buf": "scaled"}, {"buf": "mixed"}, {"f32": 0.25}]},
    {"kernel": "record", "args": [{"buf": "scaled"}, {"state": "history", "offset": 512}, {"sym": "start"}, {"u32": 128}]},
    {"kernel": "summarize", "args": [{"buf": "peak"}, {"buf": "total"}, {"buf": "scaled"}, {"i32": 128}]}
   ]
  }
 }
}
"""  # noqa: E501


def edit(pointer: str, failing: str, fixed: str) -> Example:
    """An example whose failing and fixed form differ in one value."""
    return Example({pointer: failing}, {pointer: fixed})
