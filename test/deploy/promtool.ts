/** Prometheus' own tool for rules. */
import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { runCommand } from "../../testkit/net/run-command.ts";
import { CHECKOUT } from "../docs/markdown.ts";

/** The machine's, or that of Debian's package, unpacked beside the checkout: to install the package would start a server. */
export async function findPromtool(): Promise<string> {
  const folder = join(CHECKOUT, ".cache/prometheus");
  const program = join(folder, "usr/bin/promtool");
  if (existsSync(program)) return program;
  mkdirSync(folder, { recursive: true });
  await runCommand(["apt-get", "download", "prometheus"], { cwd: folder, timeoutMs: 120_000 });
  const archives = readdirSync(folder).filter((name) => name.endsWith(".deb"));
  for (const name of archives) {
    await runCommand(["dpkg-deb", "-x", join(folder, name), folder], { timeoutMs: 60_000 });
    rmSync(join(folder, name));
  }
  return program;
}
