"""procrastinate: works off a backlog with so many workers of one process, or adds jobs; arguments as in common.mjs."""

import asyncio
import sys
import time

# This file has the library's name: its own folder must not be looked into first.
sys.path.pop(0)

import procrastinate  # noqa: E402

socket, mode = sys.argv[1:3]
workers, _, jobs = (int(number) for number in sys.argv[3:6])
limit = float(sys.argv[6])
connector = procrastinate.PsycopgConnector(
    kwargs={"host": socket, "user": "rota", "dbname": "postgres", "options": "-c search_path=procrastinate"},
    min_size=workers + 1, max_size=workers + 4)
app = procrastinate.App(connector=connector)
seen = 0


@app.task(name="noop")
async def noop(n):
    global seen
    seen += 1


async def produce():
    for n in range(8 * workers):
        await noop.defer_async(n=n)
    count, began = 0, time.perf_counter()

    async def producer():
        nonlocal count
        while time.perf_counter() - began < limit:
            await noop.defer_async(n=count)
            count += 1

    await asyncio.gather(*[producer() for _ in range(workers)])
    print(count, time.perf_counter() - began)


async def drain():
    for start in range(0, jobs, 5000):
        await noop.batch_defer_async(*[{"n": n} for n in range(start, min(start + 5000, jobs))])
    await connector.execute_query_async("ANALYZE procrastinate_jobs")
    await connector.execute_query_async("CHECKPOINT")
    began = time.perf_counter()
    worker = asyncio.create_task(app.run_worker_async(
        concurrency=workers, wait=False, install_signal_handlers=False, listen_notify=False))
    await asyncio.wait([worker], timeout=limit)
    print(seen, time.perf_counter() - began)
    worker.cancel()
    await asyncio.wait([worker])


async def main():
    async with app.open_async():
        await connector.execute_query_async("CREATE SCHEMA IF NOT EXISTS procrastinate")
        found = await connector.execute_query_one_async("SELECT to_regclass('procrastinate.procrastinate_jobs') AS t")
        if found["t"] is None:
            await app.schema_manager.apply_schema_async()
        await connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")
        await (produce() if mode == "add" else drain())


asyncio.run(main())
