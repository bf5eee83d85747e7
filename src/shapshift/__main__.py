"""``python -m shapshift`` is the command line."""

from shapshift.cli import main

if __name__ == "__main__":
    main()
