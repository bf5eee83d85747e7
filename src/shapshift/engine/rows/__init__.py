"""Training and validation rows: their distances, rows in a file, and the sources of such rows.

``distances`` lays training rows out and fills tiles of distances; ``file`` has rows in a file; ``read`` writes such a
file from memory maps and iterators (``batches``) or from Parquet (``parquet``).
"""
