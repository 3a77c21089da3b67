"""``python -m kvseal.workers --settings FILE --secret-fd N``: one worker process."""

from kvseal.workers.process import main

if __name__ == "__main__":
    main()
