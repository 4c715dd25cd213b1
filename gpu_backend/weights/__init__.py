"""Where the numbers of a model come from: random draws, safetensors folders, GGUF files."""
