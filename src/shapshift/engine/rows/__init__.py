"""Training and validation rows: their distances, rows that stay in a file, and what such rows are read from.

``distances`` lays training rows out and fills tiles of distances; ``file`` has rows in a file; ``read`` makes such a
file of memory maps and iterators (``batches``) and of Parquet (``parquet``).
"""
