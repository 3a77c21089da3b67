"""``python -m kvseal.gateway --settings FILE --secret-fd N``: one gateway process."""

from kvseal.gateway.process import main

if __name__ == "__main__":
    main()
