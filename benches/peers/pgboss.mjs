// pg-boss: fills its queue, drains it with so many loops of fetch and complete, says how long that took.
import { batch, connection, jobs, load, now, report, workers } from "./common.mjs";

const loaded = await load("pg-boss");
const PgBoss = loaded.PgBoss ?? loaded.default;
const boss = new PgBoss({ ...connection, max: workers, supervise: false, schedule: false });
boss.on("error", (error) => { throw error; });
await boss.start();
await boss.createQueue("bench");
await boss.deleteAllJobs("bench");
for (let from = 0; from < jobs; from += 5000) {
  const list = Array.from({ length: Math.min(5000, jobs - from) }, (_, n) => ({ data: { n: from + n } }));
  await boss.insert("bench", list);
}
await boss.getDb().executeSql("ANALYZE pgboss.job");
await boss.getDb().executeSql("CHECKPOINT");

let count = 0;
const loop = async () => {
  for (;;) {
    const taken = await boss.fetch("bench", { batchSize: batch });
    if (taken.length === 0) return;
    await boss.complete("bench", taken.map((job) => job.id));
    count += taken.length;
  }
};
const began = now();
await Promise.all(Array.from({ length: workers }, loop));
const seconds = now() - began;
await boss.stop({ graceful: false });
if (count !== jobs) throw new Error(`${count} of ${jobs} jobs came`);
report(jobs, seconds);
process.exit(0);
