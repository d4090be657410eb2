/**
 * The first file of the bundled program, `dist/bundle/main.js`. kube-proxy's own command line, which every start of a daemon is, comes as
 * one script with its compiled code; the commands are modules, of which each loads what it needs.
 */
import { fileURLToPath } from "node:url";
import { takeBackEngineOptions } from "../daemon/engine-options.ts";
import { compileProgram, runProgram } from "./program-script.ts";

takeBackEngineOptions();
const [word = "-"] = process.argv.slice(2);
if (word.startsWith("-")) {
  // Keeps a signal until its handler is there (proxy-command.ts), in this same turn of the loop: PID 1 has no default actions.
  for (const name of ["SIGTERM", "SIGINT"] as const) process.on(name, () => {});
  const file = fileURLToPath(new URL("./kube-proxy.cjs", import.meta.url));
  runProgram(compileProgram(file), file);
} else {
  const commands = "./commands.js";
  await import(commands);
}
