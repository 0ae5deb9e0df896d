"""``python -m ringmere`` is the ``ringmere`` command."""

from ringmere.cli import main

if __name__ == "__main__":
    main()
