"""`python -m oldhost_sync.cli …` is `oldhost-sync …`."""

import sys

if not sys.flags.safe_path:
    # `-m` puts the current folder first on the path; that folder may have its own `workflows` or `activities`.
    sys.path.append(sys.path.pop(0))

from oldhost_sync.cli.main import main

if __name__ == "__main__":
    main()
