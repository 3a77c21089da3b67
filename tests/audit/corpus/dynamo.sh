python3 -m dynamo.sglang --model-path Qwen/Qwen3-32B --disaggregation-mode prefill --disaggregation-transfer-backend nixl --page-size 64 --host 0.0.0.0
