vllm serve m --kv-transfer-config '{"kv_connector":"MooncakeConnector","kv_role":"kv_consumer"}'
vllm serve m --kv-transfer-config '{"kv_connector":"MooncakeConnector","kv_role":"kv_producer"}'
