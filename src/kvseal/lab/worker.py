"""``python -m kvseal.lab.worker``: a worker with the faults that its settings name."""

from kvseal.lab.builds import build_worker
from kvseal.workers.process import main

if __name__ == "__main__":
    main(lambda settings: build_worker(settings.faults))
