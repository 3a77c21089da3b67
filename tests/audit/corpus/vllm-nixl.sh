VLLM_NIXL_SIDE_CHANNEL_HOST=0.0.0.0 VLLM_NIXL_SIDE_CHANNEL_PORT=5600 vllm serve meta-llama/Llama-3.3-70B-Instruct \
  --port 8100 --max-model-len 128k --block-size 128 \
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_load_failure_policy":"fail"}' &
vllm serve meta-llama/Llama-3.3-70B-Instruct --port 8200 --max_model_len 131072 \
  --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'
