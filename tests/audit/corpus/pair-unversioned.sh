#!/usr/bin/env bash
set -euo pipefail
MODEL=${MODEL:-zai-org/GLM-5.3}
COMMON="--trust-remote-code"

# prefill
CUDA_VISIBLE_DEVICES=0,1,2,3 nohup python3 -m sglang.launch_server \
  --model-path "$MODEL" --context-length 1048576 \
  --disaggregation-mode prefill \
  --disaggregation-transfer-backend mooncake \
  --disaggregation-ib-device mlx5_0,mlx5_1 \
  --tp 8 --page-size 64 --host 127.0.0.1 --port 30000 > prefill.out 2>&1 &

# decode
python3 -m sglang.launch_server --model-path "$MODEL" --context-length=1048576 \
  --disaggregation-mode decode --tp-size 8 --page-size 64 --port 30001 &

python3 -m sglang_router.launch_router --pd-disaggregation \
  --prefill http://127.0.0.1:30000 8998 --decode http://127.0.0.1:30001 --host 0.0.0.0 --port 8000
