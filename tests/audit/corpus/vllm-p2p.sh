vllm serve m --kv-transfer-config.kv_connector P2pNcclConnector --kv-transfer-config.kv_role kv_producer
