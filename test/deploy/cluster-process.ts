/**
 * The test API server as a process, to be started in the network namespace of a node. Prints one line of JSON, `url` and
 * `ca`, and ends with its standard input.
 */
import { startClusterServer } from "../apiserver/api-daemon.ts";

const server = await startClusterServer({ after() {} });
process.stdout.write(`${JSON.stringify({ url: server.url, ca: server.authority.certificate })}\n`);
process.stdin.resume().on("end", () => process.exit());
