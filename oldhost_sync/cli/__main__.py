"""`python -m oldhost_sync.cli …` is `oldhost-sync …`."""

from oldhost_sync.cli.main import main

if __name__ == "__main__":
    main()
