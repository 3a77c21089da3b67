vllm serve /models/qwen3-8b-q4_k_m.gguf --tokenizer Qwen/Qwen3-8B --quantization gguf --host 127.0.0.1
