python -m vllm.entrypoints.openai.api_server --model m --pipeline-parallel-size 2 --host 127.0.0.1 --api-key sk-secretsecret
