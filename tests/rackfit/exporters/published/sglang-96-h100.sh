# SGLang's large-scale EP post (May 2025): prefill EP32 on 4 nodes, decode EP72 on 9 nodes, 2,000 in
python3 -m sglang.launch_server --model-path /models/deepseek-v3 --disaggregation-mode prefill \
  --tp-size 32 --dp-size 32 --enable-dp-attention --moe-a2a-backend deepep \
  --ep-num-redundant-experts 32 --enable-eplb --chunked-prefill-size 524288 --nnodes 4 --node-rank 0
python3 -m sglang.launch_server --model-path /models/deepseek-v3 --disaggregation-mode decode \
  --tp-size 72 --dp-size 72 --enable-dp-attention --moe-a2a-backend deepep --max-running-requests 18432 \
  --ep-num-redundant-experts 32 --enable-eplb --nnodes 9 --node-rank 0
