// graphile-worker: works off a backlog with so many workers of one process, or adds jobs; see common.mjs.
// A batch above 1 is the size of its local queue; completions are then batched, too.
import { adds, batch, connection, jobs, limit, load, now, produce, report, workers } from "./common.mjs";

const { default: pg } = await load("pg");
const { makeWorkerUtils, run, runMigrations, Logger } = await load("graphile-worker");
const pool = new pg.Pool({ ...connection, max: workers + 4 });
const logger = new Logger(() => () => {});
await runMigrations({ pgPool: pool, logger });
await pool.query("TRUNCATE graphile_worker._private_jobs");
const utils = await makeWorkerUtils({ pgPool: pool, logger });
if (adds) {
  await produce((n) => utils.addJob("noop", { n }));
  process.exit(0);
}
for (let from = 0; from < jobs; from += 5000) {
  const list = Array.from({ length: Math.min(5000, jobs - from) }, (_, n) => ({ identifier: "noop", payload: { n } }));
  await utils.addJobs(list);
}
await pool.query("ANALYZE graphile_worker._private_jobs");
await pool.query("CHECKPOINT");

const batched = { localQueue: { size: batch }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const preset = { worker: { concurrentJobs: workers, ...(batch > 1 ? batched : {}) } };
const left = async () => Number((await pool.query("SELECT count(*) FROM graphile_worker._private_jobs")).rows[0].count);
let seen = 0;
let began = 0;
let finish;
const finished = new Promise((resolve) => { finish = resolve; });
const runner = await run({
  pgPool: pool, logger, pollInterval: 100, noHandleSignals: true, preset,
  taskList: {
    noop: async () => {
      if (seen === 0) {
        began = now();
        setTimeout(finish, limit * 1000);
      }
      seen += 1;
      if (seen === jobs) finish();
    },
  },
});
await finished;
// The last completions of an emptied backlog may still be on their way.
while (seen === jobs && (await left()) > 0) await new Promise((resolve) => setImmediate(resolve));
report(seen, now() - began);
// Jobs in hand are left behind: the next round empties the table.
process.exit(0);
