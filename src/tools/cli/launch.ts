/**
 * The entry point of the bundled program, `dist/bundle/main.js`. kube-proxy's own command line, which starts every daemon, is one script
 * with its compiled code; the commands are modules, each of which loads what it needs.
 */
import { fileURLToPath } from "node:url";
import { takeBackEngineOptions } from "../../agent/daemon/engine-options.ts";
import { compileProgram, runProgram } from "./program-script.ts";

takeBackEngineOptions();
const [word = "-"] = process.argv.slice(2);
// The kubectl plugin starts no daemon.
if (word.startsWith("-") && process.env.KUBE_PROXY_TS_PLUGIN !== "1") {
  // PID 1 would lose a signal now. With a listener it reaches the handler that this same turn of the loop adds (proxy-command.ts).
  for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => {});
  const file = fileURLToPath(new URL("./kube-proxy.cjs", import.meta.url));
  runProgram(compileProgram(file), file);
} else {
  const commands = "./commands.js";
  await import(commands);
}
