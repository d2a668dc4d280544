// Shared by the scripts: where the peers are installed, how to reach the server, how to report.
// Arguments: SOCKET drain|add WORKERS BATCH JOBS SECONDS. `drain` works off a backlog of JOBS until it is empty or the time
// is up; `add` adds jobs one at a time until the time is up.
import { createRequire } from "node:module";
import { join } from "node:path";

const [, , socket, mode, ...numbers] = process.argv;
export const adds = mode === "add";
export const [workers, batch, jobs, limit] = numbers.map(Number);
export const host = socket;
export const connection = { host: socket, port: 5432, user: "rota", database: "postgres" };
const require = createRequire(join(process.env.ROTA_PEERS, "package.json"));
export const load = (name) => import(require.resolve(name));
export const version = (name) => require(join(process.env.ROTA_PEERS, "node_modules", name, "package.json")).version;
export const now = () => Number(process.hrtime.bigint()) / 1e9;
export const report = (count, seconds) => console.log(`${count} ${seconds}`);

// So many producers call `add` one after the other until the time is up; reports how many jobs were added.
export async function produce(add) {
  for (let n = 0; n < 8 * workers; n += 1) await add(n);
  let count = 0;
  const began = now();
  const producer = async () => {
    while (now() - began < limit) {
      await add(count);
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: workers }, producer));
  report(count, now() - began);
}
