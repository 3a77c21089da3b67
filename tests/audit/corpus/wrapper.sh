#!/bin/sh
exec python3 -m sglang.launch_server --model-path zai-org/GLM-5.3 "$@"
