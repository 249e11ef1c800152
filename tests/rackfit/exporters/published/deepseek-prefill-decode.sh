# DeepSeek's own units: prefill EP32 + 32 redundant on 4 nodes, decode EP144 + 32 on 18 nodes
# (open-infra-index, day 6, February 2025); their engine is written here as SGLang's options.
# rackfit: count=2
python3 -m sglang.launch_server --model-path /models/deepseek-v3 --disaggregation-mode prefill \
  --tp-size 32 --dp-size 32 --enable-dp-attention --ep-size 32 --moe-a2a-backend deepep \
  --ep-num-redundant-experts 32 --enable-eplb --nnodes 4 --node-rank 0 \
  --chunked-prefill-size 524288
python3 -m sglang.launch_server --model-path /models/deepseek-v3 --disaggregation-mode decode \
  --tp-size 144 --dp-size 144 --enable-dp-attention --ep-size 144 --moe-a2a-backend deepep \
  --ep-num-redundant-experts 32 --enable-eplb --nnodes 18 --node-rank 0
