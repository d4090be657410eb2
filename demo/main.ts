/** `npm start`: the demo, from the checkout. It is not part of the built and shipped program. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { runDemo } from "./run-demo.ts";

const BUILD = fileURLToPath(new URL("../scripts/build.mjs", import.meta.url));

async function build(): Promise<boolean> {
  return spawnSync(process.execPath, [BUILD, "--if-older"], { stdio: ["ignore", 2, "inherit"] }).status === 0;
}

process.exitCode = await runDemo(process.argv.slice(2), build);
