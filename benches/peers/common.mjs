// What the scripts share: where the peers are installed, how to reach the server, how to report.
import { createRequire } from "node:module";
import { join } from "node:path";

const [, , socket, ...numbers] = process.argv;
export const [workers, batch, jobs] = numbers.map(Number);
export const host = socket;
export const connection = { host: socket, port: 5432, user: "rota", database: "postgres" };
const require = createRequire(join(process.env.ROTA_PEERS, "package.json"));
export const load = (name) => import(require.resolve(name));
export const version = (name) => require(join(process.env.ROTA_PEERS, "node_modules", name, "package.json")).version;
export const now = () => Number(process.hrtime.bigint()) / 1e9;
export const report = (count, seconds) => console.log(`${count} ${seconds}`);
