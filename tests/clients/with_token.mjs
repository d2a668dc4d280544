// Loaded before a program that cannot be told a token: every request it makes carries the one of ROTA_TOKEN.
import { createRequire } from "node:module";
import { realpathSync } from "node:fs";

const { getGlobalDispatcher, setGlobalDispatcher } = createRequire(realpathSync(process.argv[1]))("undici");
const authorization = `Bearer ${process.env.ROTA_TOKEN}`;

const withToken = (headers) =>
  Array.isArray(headers) ? [...headers, "authorization", authorization] : { ...headers, authorization };

setGlobalDispatcher(
  getGlobalDispatcher().compose((dispatch) => (options, handler) =>
    dispatch({ ...options, headers: withToken(options.headers) }, handler),
  ),
);
