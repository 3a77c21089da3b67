"""`kvseal keys`: API keys of tenants."""

import sys
from typing import Annotated

import typer

from kvseal.gateway.keys import hash_key, new_key

keys = typer.Typer(
    add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True
)


@keys.callback()
def _root() -> None:
    """API keys of tenants. The server's configuration holds their hashes and never the keys."""


@keys.command("hash")
def keys_hash(
    new: Annotated[bool, typer.Option("--new", help="Make a new key instead of reading one.")] = False,
) -> None:
    """Print the hash of an API key, for `key_hash` in the configuration.

    The key is read from standard input, so that it stands in no list of processes and in no history. With
    --new a key is made and shown on standard error, once; only the hash goes to standard output.

    The hash is SHA-256: a key has at least 128 random bits, which no fast hash helps to guess. Do not make
    a key of words. Keys shorter than 32 characters are refused.

    \b
    Examples:
      kvseal keys hash --new
      kvseal keys hash < key.txt
    """
    if new:
        key = new_key()
        typer.echo(f"key (shown once, give it to the tenant): {key}", err=True)
    else:
        if sys.stdin.isatty():
            typer.echo("Type the key and press Enter:", err=True)
        key = sys.stdin.readline().strip()
    try:
        typer.echo(hash_key(key))
    except ValueError as error:
        typer.echo(f"kvseal: {error}. `kvseal keys hash --new` makes a good one.", err=True)
        raise typer.Exit(1) from None
