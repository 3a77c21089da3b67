python3 -m sglang.launch_server --config /etc/sglang/decode.yaml --port 30000
