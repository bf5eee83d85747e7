"""Files: written atomically, read as untrusted; and results that are saved to them."""
