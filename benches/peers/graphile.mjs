// graphile-worker: fills its queue, drains it with so many workers of one process, says how long that took.
// A batch above 1 is the size of its local queue; completions are then batched, too.
import { batch, connection, jobs, load, now, report, workers } from "./common.mjs";

const { default: pg } = await load("pg");
const { run, runMigrations, Logger } = await load("graphile-worker");
const pool = new pg.Pool({ ...connection, max: workers + 4 });
const logger = new Logger(() => () => {});
await runMigrations({ pgPool: pool, logger });
await pool.query("TRUNCATE graphile_worker._private_jobs");
await pool.query(
  "SELECT graphile_worker.add_job('noop', json_build_object('n', n)) FROM generate_series(1, $1::int) n", [jobs]);
await pool.query("ANALYZE graphile_worker._private_jobs");
await pool.query("CHECKPOINT");

const batched = { localQueue: { size: batch }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const preset = { worker: { concurrentJobs: workers, ...(batch > 1 ? batched : {}) } };
const left = async () => Number((await pool.query("SELECT count(*) FROM graphile_worker._private_jobs")).rows[0].count);
let seen = 0;
let began = 0;
let done;
const all = new Promise((resolve) => { done = resolve; });
const runner = await run({
  pgPool: pool, logger, pollInterval: 100, noHandleSignals: true, preset,
  taskList: {
    noop: async () => {
      if (seen === 0) began = now();
      seen += 1;
      if (seen === jobs) done();
    },
  },
});
await all;
// The last completions may still be on their way.
while ((await left()) > 0) await new Promise((resolve) => setImmediate(resolve));
const seconds = now() - began;
await runner.stop();
await pool.end();
report(jobs, seconds);
process.exit(0);
