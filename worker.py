"""`python worker.py`: the worker, as in every Temporal project; the same as `oldhost-sync worker`."""

from oldhost_sync.roles.worker import main

if __name__ == "__main__":
    main()
