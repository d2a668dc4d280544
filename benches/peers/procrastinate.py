"""procrastinate: fills its queue, drains it with so many workers of one process, says how long that took."""

import asyncio
import sys
import time

# This file has the library's name: its own folder must not be looked into first.
sys.path.pop(0)

import procrastinate  # noqa: E402

socket, workers, _, jobs = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
connector = procrastinate.PsycopgConnector(
    kwargs={"host": socket, "user": "rota", "dbname": "postgres", "options": "-c search_path=procrastinate"},
    min_size=workers + 1, max_size=workers + 4)
app = procrastinate.App(connector=connector)


@app.task(name="noop")
async def noop(n):
    return None


async def main():
    async with app.open_async():
        await connector.execute_query_async("CREATE SCHEMA IF NOT EXISTS procrastinate")
        found = await connector.execute_query_one_async("SELECT to_regclass('procrastinate.procrastinate_jobs') AS t")
        if found["t"] is None:
            await app.schema_manager.apply_schema_async()
        await connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")
        await noop.batch_defer_async(*[{"n": n} for n in range(jobs)])
        await connector.execute_query_async("ANALYZE procrastinate_jobs")
        await connector.execute_query_async("CHECKPOINT")
        began = time.perf_counter()
        await app.run_worker_async(
            concurrency=workers, wait=False, install_signal_handlers=False, listen_notify=False)
        seconds = time.perf_counter() - began
        print(jobs, seconds)


asyncio.run(main())
