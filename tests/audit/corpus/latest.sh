docker run --gpus all lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path m --disaggregation-mode decode
