"""Files: written whole or not at all, read without trust; results that are saved to them."""
