// What happens to a late worker: A takes a job and is late, the job is given to B, then A says that it is done.
// Two cases each: B is still running, and B has finished. Real workers and real calls; only the waiting is cut short,
// by moving the lock or the start into the past. Called by `rota-benches postgres late`.
import { connection, load, version } from "../common.mjs";
import { execFileSync } from "node:child_process";

const { default: pg } = await load("pg");
const open = () => {
  const opened = new pg.Pool(connection);
  for (const event of ["error", "connect"]) {
    opened.on(event, (subject) => { if (event === "connect") subject.on("error", () => {}); });
  }
  return opened;
};
const pool = open();
const one = async (text, values) => (await pool.query(text, values)).rows[0];
const say = (queue, moment, what) => console.log(`| ${queue} | ${moment} | ${what} |`);
console.log("| queue | when A comes back | what happens |\n|---|---|---|");

const until = async (holds) => {
  for (let waited = 0; !(await holds()); waited += 20) {
    if (waited > 20000) throw new Error("waited too long");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};

// Two real workers; a job counts as abandoned after four hours, so the lock is moved five hours back.
async function graphile(finished) {
  const { run, runMigrations, Logger } = await load("graphile-worker");
  const logger = new Logger(() => () => {});
  await runMigrations({ pgPool: pool, logger });
  await pool.query("TRUNCATE graphile_worker._private_jobs");
  await pool.query("SELECT graphile_worker.add_job('late')");
  const rows = async () =>
    (await pool.query("SELECT attempts, locked_by FROM graphile_worker._private_jobs")).rows;
  const worker = async () => {
    const state = { started: false, completed: false, trouble: "nothing" };
    const held = new Promise((resolve) => { state.finish = resolve; });
    const taskList = { late: async () => { state.started = true; await held; } };
    state.runner = await run({
      pgPool: open(), logger, noHandleSignals: true, taskList,
      preset: { worker: {
        concurrentJobs: 1, pollInterval: 50, minResetLockedInterval: 100, maxResetLockedInterval: 200 } } });
    state.runner.events.on("job:complete", ({ error }) => {
      state.completed = true;
      if (error) state.trouble = String(error);
    });
    return state;
  };
  const a = await worker();
  await until(() => a.started);
  await pool.query("UPDATE graphile_worker._private_jobs SET locked_at = now() - interval '5 hours'");
  const b = await worker();
  await until(() => b.started);
  if (finished) {
    b.finish();
    await until(async () => b.completed && (await rows()).length === 0);
  }
  const [before] = await rows();
  a.finish();
  await until(() => a.completed);
  if (!finished) await until(async () => (await rows()).length === 0);
  const what = finished
    ? `A completes a job that is gone; A is told ${a.trouble}`
    : `the job (attempt ${before.attempts}, locked by B) is deleted while B is running; A is told ${a.trouble}`;
  b.finish();
  await until(() => b.completed);
  say(`graphile-worker ${version("graphile-worker")}`, finished ? "B has finished" : "B is running",
    finished ? what : `${what}; B, when it completes, is told ${b.trouble}`);
  await a.runner.stop();
  await b.runner.stop();
}

async function boss(finished) {
  const loaded = await load("pg-boss");
  const PgBoss = loaded.PgBoss ?? loaded.default;
  const boss = new PgBoss({ ...connection, supervise: false, schedule: false });
  boss.on("error", (error) => { throw error; });
  await boss.start();
  // A queue of its own for each case: it is looked after once a minute at most.
  const queue = finished ? "late_finished" : "late_running";
  await boss.createQueue(queue, { retryLimit: 5, retryDelay: 0, expireInSeconds: 60 });
  await boss.deleteAllJobs(queue);
  const id = await boss.send(queue, {});
  const [a] = await boss.fetch(queue);
  await pool.query("UPDATE pgboss.job SET started_on = now() - interval '2 minutes' WHERE id = $1", [id]);
  await boss.supervise(queue);
  await pool.query("UPDATE pgboss.job SET start_after = now() WHERE id = $1 AND state = 'retry'", [id]);
  const [b] = await boss.fetch(queue);
  if (b?.id !== a.id) throw new Error("B did not get the job");
  if (finished) await boss.complete(queue, id, { by: "b" });
  const before = await one("SELECT state, output FROM pgboss.job WHERE id = $1", [id]);
  const answer = await boss.complete(queue, id, { by: "a" });
  const { state, output } = await one("SELECT state, output FROM pgboss.job WHERE id = $1", [id]);
  const bAnswer = finished ? null : await boss.complete(queue, id, { by: "b" });
  const affected = (told) => `${told?.affected ?? JSON.stringify(told)} affected`;
  say(`pg-boss ${version("pg-boss")}`, finished ? "B has finished" : "B is running",
    `${before.state} → ${state} with the result of ${output?.by ?? "nobody"}; A is told ${affected(answer)}`
    + (finished ? "" : `; B's own completion after it: ${affected(bAnswer)}`));
  await boss.stop({ graceful: false });
}

// Rota by its verbs, as agents call it.
function rota(finished) {
  const program = process.env.ROTA;
  const env = { ...process.env,
    ROTA_STORE: `postgres://rota@/postgres?host=${connection.host}&schema=late_${finished ? "f" : "r"}` };
  const call = (...words) => {
    try {
      return { code: 0, text: execFileSync(program, words, { env, encoding: "utf8", stdio: "pipe" }) };
    } catch (error) {
      return { code: error.status, text: `${error.stdout}${error.stderr}` };
    }
  };
  const must = (...words) => {
    const { code, text } = call(...words);
    if (code !== 0) throw new Error(`rota ${words.join(" ")}: ${text}`);
    return text;
  };
  must("task", "create", "late", "Late");
  must("task", "claim", "--agent", "a", "--lease", "1");
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1100);
  must("task", "claim", "--agent", "b");
  if (finished) must("task", "done", "late", "--agent", "b");
  const { code, text } = call("task", "done", "late", "--agent", "a");
  say("Rota", finished ? "B has finished" : "B is running", `refused, exit ${code}: ${text.trim().split("\n")[0]}`);
  if (!finished) must("task", "done", "late", "--agent", "b");
}

for (const finished of [false, true]) {
  await graphile(finished);
  await boss(finished);
  rota(finished);
}
await pool.end();
process.exit(0);
