"""Reading models as they are published: Hugging Face folders and GGUF files."""
