"""`python -m oldhost_sync.cli …` is `oldhost-sync …`."""

import sys

if not sys.flags.safe_path:
    # `-m` looks in the user's folder first, which may have a `workflows` or `activities` of its own.
    sys.path.append(sys.path.pop(0))

from oldhost_sync.cli.main import main

if __name__ == "__main__":
    main()
