"""The shells of the prefill and decode workers: core's effects carried out with real bytes, sockets and a
clock.
"""
