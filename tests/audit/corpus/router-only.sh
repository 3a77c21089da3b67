sglang-router launch --pd-disaggregation --prefill http://a:30000 8998 --decode http://b:30000
