"""The gateway: HTTP on one side, decode workers on the other. Knows tenants, text and tokens, and no
pages.
"""
