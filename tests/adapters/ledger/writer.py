"""A process that writes rows to a ledger and says so on its output, to be killed: `writer.py PATH [LARGEST_FILE]`.

With a largest file size, it writes until the system refuses, then lifts the limit and writes once more.
"""

import asyncio
import resource
import sys

from headroom.adapters.ledger.sqlite import SqliteLedger
from headroom.model.errors import Unavailable
from tests.adapters.ledger.rows import row

AT_ONCE = 20


def batch(number: int) -> list[int]:
    return list(range(number * AT_ONCE + 1, (number + 1) * AT_ONCE + 1))


async def write_forever(ledger: SqliteLedger) -> None:
    number = 0
    while True:
        await ledger.write([row(each) for each in batch(number)])
        print(number, flush=True)
        number += 1


async def write_until_full(ledger: SqliteLedger, largest: int) -> None:
    await ledger.cursor()
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    number = 0
    try:
        while True:
            await ledger.write([row(each) for each in batch(number)])
            print(number, flush=True)
            number += 1
    except Unavailable as error:
        print(error, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await ledger.write([row(each) for each in batch(number)])
    print(number, flush=True)
    await ledger.close()


if __name__ == "__main__":
    ledger = SqliteLedger(sys.argv[1])
    asyncio.run(write_until_full(ledger, int(sys.argv[2])) if len(sys.argv) > 2 else write_forever(ledger))
