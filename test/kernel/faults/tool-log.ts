/** Records which of the host's programs a daemon starts. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** What some mode could start besides the iptables tools. */
const OTHERS = ["ipset", "ipvsadm", "ip", "nft", "conntrack", "sysctl", "modprobe", "nfacct"];

export class ToolLog {
  readonly env: NodeJS.ProcessEnv;
  readonly #log: string;

  /** @param folder the test's, empty; removed by the test. @param backEnd which of the host's iptables to run. */
  constructor(folder: string, backEnd: "nft" | "legacy") {
    this.#log = join(folder, "log");
    this.env = { PATH: `${folder}:${process.env.PATH}`, XTABLES_LOCKFILE: join(folder, "xtables.lock") };
    writeFileSync(this.#log, "");
    const put = (tool: string, run: string): void => {
      const script = `#!/bin/sh\necho '${tool}' "$@" >> '${this.#log}'\nexec ${run} "$@"\n`;
      writeFileSync(join(folder, tool), script, { mode: 0o755 });
    };
    for (const tool of ["iptables", "ip6tables"]) {
      for (const part of ["", "-save", "-restore"]) put(tool + part, `/usr/sbin/${tool}-${backEnd}${part}`);
    }
    for (const tool of OTHERS) put(tool, `env 'PATH=${process.env.PATH}' ${tool}`);
  }

  /** The command lines since the last call. */
  taken(): string[] {
    const text = readFileSync(this.#log, "utf8");
    writeFileSync(this.#log, "");
    return text.split("\n").filter((line) => line !== "");
  }
}
