"""The codes of rule 10: a manifest against the files in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kern.manifest.diagnostics import Code, FolderExample

MODULE_MISSING = Code(
    "K1001",
    "kernel file missing",
    "A step pins a kernel file by name, and the folder `kernels` has no file of that name. kern does not search "
    "elsewhere. Put the file there, or correct the name in `cubin`.",
    FolderExample(
        'a step has "cubin": "waves.cubin"; kernels/ holds only products.cubin',
        "waves.cubin is copied into kernels/",
    ),
)
HASH_DIFFERS = Code(
    "K1002",
    "kernel file has another hash",
    "A step pins a kernel file by its sha256, and the file in the folder has another one. Either the file was damaged "
    "or replaced, or it was rebuilt and the manifest was not. The file is not used. Build the folder again, or write "
    "the new hash into the manifest if the change was intended.",
    FolderExample(
        "one byte of kernels/waves.cubin was changed after the manifest was written",
        "kernels/waves.cubin is the file that was hashed",
    ),
)
UNSAFE_FILE = Code(
    "K1003",
    "kernel file cannot be read safely",
    "Kernel files are regular files in the folder `kernels`, without links. A name that leads out of the folder "
    "(absolute, or with `..`), a link, a directory, a device or a file above the size limit is rejected: only files of "
    "the folder are hashed and loaded. Put the file itself into `kernels`.",
    FolderExample("kernels/waves.cubin is a link to /tmp/waves.cubin", "kernels/waves.cubin is a copy of that file"),
)
BAD_MODULE = Code(
    "K1004",
    "not a usable kernel file",
    "A file in `kernels` is neither a cubin nor a host module, is truncated or damaged, or asks the loader for "
    "something that no kernel needs (a library search path, an unexpected library, fork). A step that pins no file is "
    "searched for in all of them, so each must be readable. Build the file again, or remove it from the folder.",
    FolderExample("kernels/waves.cubin was copied only in part", "kernels/waves.cubin is copied whole"),
)
SYMBOL_MISSING = Code(
    "K1005",
    "symbol in no kernel file",
    "No kernel file that this step may use has a kernel of this name. Symbols are compared as they are in the file: a "
    'C++ kernel has a mangled name unless it is declared extern "C". Correct the symbol, or add the file.',
    FolderExample(
        'a step has "symbol": "blur"; the cubin holds _Z4blurPfPKf',
        'the step has "symbol": "_Z4blurPfPKf"',
    ),
)
AMBIGUOUS = Code(
    "K1006",
    "symbol in several kernel files",
    "Several kernel files have a kernel of this name with the parameter layout that the step declares. kern does not "
    "choose one, since the choice would depend on file names. Pin the intended one with `cubin` and `sha256`, or "
    "remove the others from the folder.",
    FolderExample(
        "kernels/a.cubin and kernels/b.cubin both have `scale` with the same parameters; the step pins neither",
        'the step has "cubin": "a.cubin" and its "sha256"',
    ),
)
PARAM_COUNT = Code(
    "K1007",
    "number of parameters differs",
    "The kernel file records how many parameters its kernel takes, and the step declares another number. The kernel "
    "would read past its parameters, or ignore some. Declare the parameters of the kernel.",
    FolderExample("a step declares 3 params; the kernel in the cubin takes 4", "the step declares all 4"),
)
PARAM_LAYOUT = Code(
    "K1008",
    "parameter layout differs",
    "The kernel file records the offset and size of each parameter; the params of a step have a layout by the rules of "
    "C (each at the next multiple of its size: pointers and i64 8 bytes, u8 1, the others 4). Where the two differ the "
    "kernel would read wrong values. Declare the type in the kernel's source.",
    FolderExample('a step declares "i32" for a parameter that is `long long` in the kernel', 'the step declares "i64"'),
)
PARAM_TYPE = Code(
    "K1009",
    "parameter type differs",
    "A host module records the type of every parameter, so that types of equal size are distinguished too: i32, u32 "
    "and f32 all have 4 bytes, and a kernel that gets the wrong one computes wrong results. Declare the type in the "
    "module.",
    FolderExample('a step declares "i32" for a parameter that is f32 in the host module', 'the step declares "f32"'),
)
SHARED_MEM = Code(
    "K1010",
    "too much shared memory per block",
    "The kernel's static shared memory plus the step's `shared_mem`, at the largest symbol values, exceed the limit of "
    "the architecture for a block: 227 KB on sm_90 and sm_100, 163 KB on sm_80, 99 KB on sm_86, sm_89 and sm_120. The "
    "launch would fail. Lower `shared_mem` or the bounds of the symbols, or build the kernel with smaller tiles.",
    FolderExample(
        "a kernel for sm_86 with 4 KB of static shared memory; the step asks for 98,304 bytes more",
        "the step asks for 65,536 bytes",
    ),
)
BLOCK_TOO_LARGE = Code(
    "K1011",
    "block larger than the kernel allows",
    "The kernel was compiled for a maximum number of threads per block (`__launch_bounds__`), or needs so many "
    "registers per thread that a larger block does not fit the 65,536 of a multiprocessor. The launch would fail. Use "
    "a smaller block, or compile the kernel for this one.",
    FolderExample(
        "a kernel compiled with __launch_bounds__(256); the step's block is [512, 1, 1]",
        "the step's block is [256, 1, 1]",
    ),
)
BLOCK_NOT_REQUIRED = Code(
    "K1012",
    "block is not the one the kernel requires",
    "The kernel was compiled for one block size (`__block_size__`, `.reqntid`) and runs only with it. Use that size.",
    FolderExample(
        "a kernel compiled for blocks of [64, 2, 1]; the step's block is [128, 1, 1]",
        "the step's block is [64, 2, 1]",
    ),
)
HOST_UNPINNED = Code(
    "K1013",
    "host module without a pin",
    "Loading a shared object runs code in it before any kernel is called, with all rights of the user. A host module "
    "is therefore loaded only if the manifest pins it: every step that uses it has `cubin` (the file name) and "
    "`sha256`.",
    FolderExample(
        "a step whose symbol is in kernels/kernels.so has no sha256",
        'the step has "cubin": "kernels.so" and its "sha256"',
    ),
)
MIXED_KINDS = Code(
    "K1014",
    "cubins and host modules mixed",
    "A manifest runs on one device, so its steps use cubins or host modules, not both. The location shown is the first "
    "step whose file is of another kind than those before it. Build the folder for one target.",
    FolderExample("one step resolves to kernels/waves.cubin, another to kernels/kernels.so", "both resolve to cubins"),
)
WRONG_TARGET = Code(
    "K1015",
    "kernel file does not run on the target",
    "A cubin runs on its own architecture and on later ones of the same major version (sm_80 code on sm_86); one whose "
    "name ends in `a` runs only on its own architecture (sm_90a code on sm_90). A host module runs on its instruction "
    "set and on supersets of it (x86-64-v3 code on x86-64-v4). The location shown is the first step whose file does "
    "not run on the target. Build the folder for the target, or run it on a machine that it was built for.",
    FolderExample("kernels/waves.cubin is built for sm_80; the target is sm_90a", "it is built for sm_90a"),
)
WEIGHTS_MISSING = Code(
    "K1016",
    "no weights file",
    "The manifest has weight buffers, the folder has no weights.safetensors, and no other file was given. Put the file "
    "there, or give its path with --weights.",
    FolderExample(
        "a manifest with a weight buffer in a folder without weights.safetensors",
        "weights.safetensors is next to manifest.json",
    ),
)
BAD_WEIGHTS_FILE = Code(
    "K1017",
    "unusable weights file",
    "The weights file is a link, cannot be read, is truncated, or its header contradicts itself or the size of the "
    "file. No tensor is read before the header is valid. Download or export the file again.",
    FolderExample("weights.safetensors was downloaded only in part", "weights.safetensors is downloaded whole"),
)
WEIGHT_MISSING = Code(
    "K1018",
    "weight not in the weights file",
    "A weight buffer is bound to the tensor of the same name, and the weights file has no such tensor. It may have "
    "tensors that no buffer names. Correct the name, or export the tensor.",
    FolderExample("a weight buffer `mask`; the file has only `mask.values`", "the buffer is named `mask.values`"),
)
WEIGHT_DTYPE = Code(
    "K1019",
    "weight has another dtype",
    "The dtype of the tensor in the weights file is not the one that the buffer declares. kern converts nothing: the "
    "kernels would read the bytes as the declared dtype. Export the tensor in the dtype that the kernels read.",
    FolderExample("a weight buffer of dtype bf16; its tensor is stored as F32", "the tensor is exported as BF16"),
)
WEIGHT_SHAPE = Code(
    "K1020",
    "weight has another shape",
    "The shape of the tensor in the weights file is not the one that the buffer declares. An equal number of elements "
    "is not enough: a transposed matrix has as many. Export the tensor in the shape that the kernels read.",
    FolderExample(
        "a weight buffer of shape [64, 128]; its tensor has shape [128, 64]", "the tensor is exported as [64, 128]"
    ),
)
HOST_ATTRIBUTE = Code(
    "K1021",
    "launch attribute not supported on the host",
    "Clusters and cooperative launches make blocks of a GPU run at the same time. The host device runs a grid as one "
    "function call and supports neither, so a step in a host module cannot use them. Remove the attribute.",
    FolderExample('a step in the host module waves.so has "cooperative": true', "the step does not have `cooperative`"),
)

CODES: Final[Mapping[str, Code]] = MappingProxyType(
    {
        code.id: code
        for code in (
            MODULE_MISSING,
            HASH_DIFFERS,
            UNSAFE_FILE,
            BAD_MODULE,
            SYMBOL_MISSING,
            AMBIGUOUS,
            PARAM_COUNT,
            PARAM_LAYOUT,
            PARAM_TYPE,
            SHARED_MEM,
            BLOCK_TOO_LARGE,
            BLOCK_NOT_REQUIRED,
            HOST_UNPINNED,
            MIXED_KINDS,
            WRONG_TARGET,
            WEIGHTS_MISSING,
            BAD_WEIGHTS_FILE,
            WEIGHT_MISSING,
            WEIGHT_DTYPE,
            WEIGHT_SHAPE,
            HOST_ATTRIBUTE,
        )
    }
)
"""Every code of rule 10 by its id."""
