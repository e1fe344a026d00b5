"""`python starter.py`: start the writer of SYNC_HOST, or attach to the running one; safe to run twice."""

from oldhost_sync.roles.starter import main

if __name__ == "__main__":
    main()
