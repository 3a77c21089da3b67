"""``python -m kvseal.lab.gateway``: a gateway with the faults that its settings name."""

from kvseal.gateway.process import main
from kvseal.lab.builds import build_gateway

if __name__ == "__main__":
    main(lambda settings: build_gateway(settings.faults))
