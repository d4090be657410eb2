/** A stand-in for iptables-restore that a test can make fail: otherwise it runs the host's own tool. */
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";

/** The stand-in's error message for a payload that contains the text. */
export type Complaint = "names the line" | "names nothing";

const MESSAGES: Readonly<Record<Complaint, string>> = {
  "names the line": "iptables-restore: line $number failed: No chain/target/match by that name.",
  "names nothing": "iptables-restore: the kernel is not in the mood",
};

export class RestoreWrapper {
  /** To be put first in PATH. */
  readonly folder: string;
  readonly #order: string;

  /** @param folder the test's; removed by the test. */
  constructor(folder: string, complaint: Complaint) {
    this.folder = join(folder, "bin");
    this.#order = join(folder, "refuse");
    mkdirSync(this.folder);
    const real = execFileSync("sh", ["-c", "command -v iptables-restore"], { encoding: "utf8" }).trim();
    const script = `#!/bin/sh
payload=$(cat; echo end)
if [ -f '${this.#order}' ] && found=$(printf '%s' "$payload" | grep -n -m 1 -F -f '${this.#order}'); then
  number=\${found%%:*}
  echo "${MESSAGES[complaint]}" >&2
  exit 1
fi
printf '%s' "\${payload%end}" | '${real}' "$@"
`;
    const path = join(this.folder, "iptables-restore");
    writeFileSync(path, script);
    chmodSync(path, 0o755);
  }

  get env(): NodeJS.ProcessEnv {
    return { PATH: `${this.folder}:${process.env.PATH}` };
  }

  /** From now on, payloads with this text are rejected. */
  refuse(text: string): void {
    writeFileSync(this.#order, `${text}\n`);
  }

  heal(): void {
    rmSync(this.#order);
  }
}

/** The failed restores counted in the metrics for IPv4. */
export async function restoreFailures(daemon: ProxyDaemon): Promise<number> {
  const series = 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"}';
  return (await daemon.metric(series)) ?? Number.NaN;
}
