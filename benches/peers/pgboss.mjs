// pg-boss: works off a backlog with so many loops of fetch and complete, or adds jobs; see common.mjs.
import { adds, batch, connection, jobs, limit, load, now, produce, report, workers } from "./common.mjs";

const loaded = await load("pg-boss");
const PgBoss = loaded.PgBoss ?? loaded.default;
const boss = new PgBoss({ ...connection, max: workers, supervise: false, schedule: false });
boss.on("error", (error) => { throw error; });
await boss.start();
await boss.createQueue("bench");
await boss.deleteAllJobs("bench");
if (adds) {
  await produce((n) => boss.send("bench", { n }));
  process.exit(0);
}
for (let from = 0; from < jobs; from += 5000) {
  const list = Array.from({ length: Math.min(5000, jobs - from) }, (_, n) => ({ data: { n: from + n } }));
  await boss.insert("bench", list);
}
await boss.getDb().executeSql("ANALYZE pgboss.job");
await boss.getDb().executeSql("CHECKPOINT");

let count = 0;
const began = now();
const loop = async () => {
  while (now() - began < limit) {
    const taken = await boss.fetch("bench", { batchSize: batch });
    if (taken.length === 0) return;
    await boss.complete("bench", taken.map((job) => job.id));
    count += taken.length;
  }
};
await Promise.all(Array.from({ length: workers }, loop));
report(count, now() - began);
process.exit(0);
