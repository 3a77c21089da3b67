docker run -d --name prefill --gpus all --shm-size 32g --ipc=host -p 30000:30000 -p 8998:8998 \
  -e NCCL_DEBUG=WARN -v /models:/models lmsysorg/sglang:v0.5.20-cu126 \
  python3 -m sglang.launch_server --model-path /models/GLM-5.3 --disaggregation-mode prefill --host 0.0.0.0
docker run -d --name decode --gpus all --shm-size 32g -p 30001:30001 \
  -e SGLANG_USE_PICKLE_IPC=0 lmsysorg/sglang:v0.5.20-cu126 \
  python3 -m sglang.launch_server --model-path /models/GLM-5.3 --disaggregation-mode decode --host 0.0.0.0 --port 30001
