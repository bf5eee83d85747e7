"""A local page to look at rows, decide, and see what that changes: ``shapshift app``, with the extra ``app``.

``rows`` holds the columns, ``study`` what is known and decided, ``work`` what takes long, ``security`` who is let in,
``routes`` what the page may ask for, ``server`` the process. The page itself is in ``static``.
"""
