sglang serve --model zai-org/GLM-5.3 --disaggregation-m decode --disaggregation-tr mooncake --disaggregation-enable-kv-checksums
