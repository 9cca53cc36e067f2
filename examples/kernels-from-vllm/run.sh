#!/usr/bin/env bash
# Record vLLM and transformers, analyse both recordings, build Qwen3-4B on vLLM's kernels, verify it, run it.
#
#     bash run.sh MODEL_DIR OUT
#
# MODEL_DIR is a Hugging Face folder of Qwen3-4B; with a config.json and no weights, random ones are used. OUT must not
# exist. Needs a CUDA GPU, vllm 0.24, transformers, and kern with its extras `capture` and `cuda`.
set -euo pipefail
usage="usage: bash run.sh MODEL_DIR OUT"
model=${1:?$usage} out=${2:?$usage} here=$(dirname "$0")
mkdir "$out"
if compgen -G "$model/*.safetensors" > /dev/null; then
    weights=(--checkpoint "$model")
else
    weights=(--random --config qwen3-4b)
fi

echo "== vLLM, without and with the recorder"
python3 "$here/record_vllm.py" "$model" > "$out/vllm.json"
kern capture -o "$out/vllm" -- python3 "$here/record_vllm.py" "$model" > "$out/vllm-recorded.json"
python3 - "$out/vllm.json" "$out/vllm-recorded.json" <<'PYTHON'
import json, sys
plain, recorded = (json.load(open(path)) for path in sys.argv[1:])
if plain["output_ids"] != recorded["output_ids"]:
    sys.exit(f"the recorder changed the output: {plain['output_ids']} became {recorded['output_ids']}")
print(f"the same ids; {recorded['seconds']:.2f} s recorded, {plain['seconds']:.2f} s without: "
      f"{recorded['seconds'] / plain['seconds']:.2f} times")
PYTHON
kern mine "$out/vllm"
kern mine "$out/vllm" --abi

echo "== transformers"
kern capture -o "$out/transformers" -- python3 "$here/record_transformers.py" "$model"
kern mine "$out/transformers"

echo "== Qwen3-4B on vLLM's kernels"
kern build qwen3 "${weights[@]}" --capture "$out/vllm" -o "$out/qwen3"
kern verify "$out/qwen3"
kern run "$out/qwen3" --prompt-ids 785,6722,315,9625,374 --max-tokens 32 --ignore-stop --json
kern bench "$out/qwen3"
