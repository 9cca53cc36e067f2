"""The codes of rule 10: what must agree between a manifest and the files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kern.manifest.diagnostics import Code, FolderExample

MODULE_MISSING = Code(
    "K1001",
    "kernel file missing",
    "A step pins a kernel file by name, and the folder `kernels` has no file of that name. kern looks nowhere "
    "else: a pinned step runs the file it names or nothing. Put the file there, or correct the name in "
    "`cubin`.",
    FolderExample(
        'a step says "cubin": "waves.cubin"; kernels/ holds only products.cubin',
        "waves.cubin is copied into kernels/",
    ),
)
HASH_DIFFERS = Code(
    "K1002",
    "kernel file has another hash",
    "A step pins a kernel file by the sha256 of its bytes, and the file in the folder has another. Either the "
    "file was damaged or replaced, or it was rebuilt and the manifest was not. Nothing of such a file is used. "
    "Rebuild the folder, or take the new hash into the manifest if the change was meant.",
    FolderExample(
        "one byte of kernels/waves.cubin was changed after the manifest was written",
        "kernels/waves.cubin is the file that was hashed",
    ),
)
UNSAFE_FILE = Code(
    "K1003",
    "kernel file cannot be read safely",
    "Kernel files are regular files inside the folder `kernels`, reached through no link. A name that leads "
    "out of the folder (absolute, or with `..`), a link, a directory, a device or a file beyond the size bound "
    "is refused: what is hashed and loaded must be what the folder itself holds. Put the file itself into "
    "`kernels`.",
    FolderExample("kernels/waves.cubin is a link to /tmp/waves.cubin", "kernels/waves.cubin is a copy of that file"),
)
BAD_MODULE = Code(
    "K1004",
    "not a usable kernel file",
    "A file in `kernels` is neither a cubin nor a host module, is cut off or damaged, or asks the loader for "
    "something that a kernel has no need of (a library search path, an unexpected library, fork). A step that pins "
    "no file is looked for in all of them, so each must be readable. Rebuild the file, or take it out of the "
    "folder.",
    FolderExample("kernels/waves.cubin was copied only in part", "kernels/waves.cubin is copied whole"),
)
SYMBOL_MISSING = Code(
    "K1005",
    "symbol in no kernel file",
    "No kernel file that this step may use has a kernel of this name. Symbols are compared as they stand in "
    'the file: a C++ kernel has a mangled name unless it is declared extern "C". Correct the symbol, or add '
    "the file.",
    FolderExample(
        'a step says "symbol": "blur"; the cubin holds _Z4blurPfPKf',
        'the step says "symbol": "_Z4blurPfPKf"',
    ),
)
AMBIGUOUS = Code(
    "K1006",
    "symbol in several kernel files",
    "Several kernel files have a kernel of this name with the parameter layout that the step declares. kern "
    "never takes the first one: which kernel runs would depend on file names. Pin the one that is meant with "
    "`cubin` and `sha256`, or take the others out of the folder.",
    FolderExample(
        "kernels/a.cubin and kernels/b.cubin both have `scale` with the same parameters; the step pins neither",
        'the step says "cubin": "a.cubin" and its "sha256"',
    ),
)
PARAM_COUNT = Code(
    "K1007",
    "number of parameters differs",
    "The kernel file itself says how many parameters its kernel takes, and the step declares another number. "
    "Launched like this the kernel would read past its parameters, or ignore some. Declare the parameters that "
    "the kernel has.",
    FolderExample("a step declares 3 params; the kernel in the cubin takes 4", "the step declares all 4"),
)
PARAM_LAYOUT = Code(
    "K1008",
    "parameter layout differs",
    "The kernel file says at which byte each parameter stands and how many bytes it takes; a step's params "
    "give a layout by the C rules (each at the next multiple of its size: pointers and i64 8 bytes, u8 1, the "
    "others 4). Where the two differ the kernel would read garbage. Declare the type that the kernel's source "
    "has.",
    FolderExample('a step declares "i32" for a parameter that is `long long` in the kernel', 'the step declares "i64"'),
)
PARAM_TYPE = Code(
    "K1009",
    "parameter type differs",
    "A host module names the type of every parameter, so that types of equal size are told apart too: i32, u32 "
    "and f32 take 4 bytes each, and a kernel given one for another computes nonsense. Declare the type that "
    "the module names.",
    FolderExample('a step declares "i32" for a parameter that the host module calls f32', 'the step declares "f32"'),
)
SHARED_MEM = Code(
    "K1010",
    "more shared memory than a block may have",
    "The kernel's own static shared memory and the step's `shared_mem`, at the largest symbol values, go "
    "together beyond what the architecture allows a block: 227 KB on sm_90 and sm_100, 163 KB on sm_80, 99 KB "
    "on sm_86, sm_89 and sm_120. The launch would fail. Lower `shared_mem`, bound the symbols, or build the "
    "kernel with smaller tiles.",
    FolderExample(
        "a kernel for sm_86 with 4 KB of static shared memory; the step asks for 98,304 bytes more",
        "the step asks for 65,536 bytes",
    ),
)
BLOCK_TOO_LARGE = Code(
    "K1011",
    "block larger than the kernel allows",
    "The kernel was compiled for at most a number of threads a block (`__launch_bounds__`), or needs so many "
    "registers a thread that a larger block does not fit the 65,536 of a multiprocessor. The launch would "
    "fail. Use a smaller block, or compile the kernel for this one.",
    FolderExample(
        "a kernel compiled with __launch_bounds__(256); the step's block is [512, 1, 1]",
        "the step's block is [256, 1, 1]",
    ),
)
BLOCK_NOT_REQUIRED = Code(
    "K1012",
    "block is not the one the kernel requires",
    "The kernel was compiled for one block size (`__block_size__`, `.reqntid`) and runs with no other. Use that one.",
    FolderExample(
        "a kernel compiled for blocks of [64, 2, 1]; the step's block is [128, 1, 1]",
        "the step's block is [64, 2, 1]",
    ),
)
HOST_UNPINNED = Code(
    "K1013",
    "host module without a pin",
    "Loading a shared object runs code of it before any kernel is called, and that code may do whatever the "
    "user may. So a host module is loaded only where the manifest pins its bytes: every step that uses it says "
    "`cubin` (the file's name) and `sha256`.",
    FolderExample(
        "a step whose symbol is in kernels/kernels.so has no sha256",
        'the step says "cubin": "kernels.so" and its "sha256"',
    ),
)
MIXED_KINDS = Code(
    "K1014",
    "cubins and host modules mixed",
    "One manifest runs on one device, so its steps use cubins or host modules and never both. The place shown "
    "is the first step whose file is of another kind than those before it. Build the folder for one target.",
    FolderExample("one step resolves to kernels/waves.cubin, another to kernels/kernels.so", "both resolve to cubins"),
)
WRONG_TARGET = Code(
    "K1015",
    "kernel file does not run on the target",
    "A cubin runs on its own architecture and on later ones of the same major number (sm_80 code on sm_86); one whose "
    "name ends in `a` runs on GPUs of its own architecture alone (sm_90a code on those of sm_90). A host module runs "
    "on its instruction set and on supersets of it (x86-64-v3 code on x86-64-v4). The place shown is the first step "
    "whose file does not. Build the folder for the target, or run it on a machine of the kind that it was built for.",
    FolderExample("kernels/waves.cubin is built for sm_80; the target is sm_90a", "it is built for sm_90a"),
)
WEIGHTS_MISSING = Code(
    "K1016",
    "no weights file",
    "The manifest has weight buffers, and the folder has no weights.safetensors (nor was another file given). "
    "Put the file there, or say where it is with --weights.",
    FolderExample(
        "a manifest with a weight buffer in a folder without weights.safetensors",
        "weights.safetensors lies beside manifest.json",
    ),
)
BAD_WEIGHTS_FILE = Code(
    "K1017",
    "weights file not usable",
    "The weights file is a link, may not be read, is cut off, or its header contradicts itself or the file's "
    "size. No byte of a tensor is read before the header holds. Fetch or export the file again.",
    FolderExample("weights.safetensors was downloaded only in part", "weights.safetensors is downloaded whole"),
)
WEIGHT_MISSING = Code(
    "K1018",
    "weight not in the weights file",
    "A weight buffer is bound to the tensor of the same name, and the weights file has none. Tensors that no "
    "buffer names are allowed, so a misspelt name shows up here and nowhere else. Correct the name, or export "
    "the tensor.",
    FolderExample("a weight buffer `mask`; the file has only `mask.values`", "the buffer is named `mask.values`"),
)
WEIGHT_DTYPE = Code(
    "K1019",
    "weight has another dtype",
    "The tensor in the weights file is stored in another dtype than the buffer declares. kern converts "
    "nothing: the kernels would read the bytes as what the manifest says. Export the tensor in the dtype that "
    "the kernels read.",
    FolderExample("a weight buffer of dtype bf16; its tensor is stored as F32", "the tensor is exported as BF16"),
)
WEIGHT_SHAPE = Code(
    "K1020",
    "weight has another shape",
    "The tensor in the weights file has another shape than the buffer declares. Equal numbers of elements do "
    "not help: a transposed matrix has as many. Export the tensor in the shape that the kernels read.",
    FolderExample(
        "a weight buffer of shape [64, 128]; its tensor has shape [128, 64]", "the tensor is exported as [64, 128]"
    ),
)
HOST_ATTRIBUTE = Code(
    "K1021",
    "launch attribute that the host device has not",
    "Clusters and cooperative launches are ways in which blocks of a GPU run side by side. The host device runs a grid "
    "as one function call and has neither, so a step in a host module cannot ask for them. Take the attribute out.",
    FolderExample(
        'a step in the host module waves.so says "cooperative": true', "the step says nothing of cooperative launches"
    ),
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
