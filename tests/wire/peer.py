"""A worker of the tests, as a process of its own: `python peer.py ROLE ADDRESS SECRET_FD INSTANCE`.

``chatty``   dials, sends messages until it is killed, reads nothing
``patient``  dials, sends one message, then waits
``server``   serves, sends each peer one message, then waits

Says "ready" on its standard output when it has begun.
"""

import asyncio
import sys

from kvseal.core.ids import InstanceId, RequestId
from kvseal.core.messages import Hello, Tokens
from kvseal.wire import Connection, connect, read_secret_fd, serve

READY = "ready"


def message(index: int, count: int) -> Tokens:
    return Tokens(request=RequestId("r"), attempt=0, index=index, tokens=tuple(range(count)))


async def chatter(connection: Connection) -> None:
    index = 0
    while True:
        if connection.unsent_bytes < 2**20:
            connection.send(message(index, count=20_000))
            index += 1
        await asyncio.sleep(0)


async def main(role: str, address: str, secret: bytes, hello: Hello) -> None:
    async def attend(connection: Connection) -> None:
        connection.send(message(0, count=1))
        await connection.wait_closed()

    if role == "server":
        await serve(address, lambda: hello, secret, attend)
        say_ready()
        await asyncio.Event().wait()
    connection = await connect(address, hello, secret)
    say_ready()
    await (chatter(connection) if role == "chatty" else attend(connection))


def say_ready() -> None:
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _, role, address, descriptor, instance = sys.argv
    me = Hello(role="decode", instance=InstanceId(bytes.fromhex(instance)))
    asyncio.run(main(role, address, read_secret_fd(int(descriptor)), me))
