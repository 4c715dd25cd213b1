"""Where keys and values live: pools and the allocators that hand them out."""
