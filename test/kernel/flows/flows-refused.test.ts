/** `kube-proxy flows` if the kernel reports less than it could, or nothing. */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before, test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { until } from "../../../testkit/support/patience.ts";
import { UNPRIVILEGED } from "../../../testkit/support/unprivileged.ts";
import { PROGRAM } from "../../apiserver/api-daemon.ts";
import { clusterOf } from "./cluster-objects.ts";

const NETFILTER = "/proc/sys/net/netfilter";

inNetns(import.meta.url, { name: "flowsrefused" }, () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-refused-"));
  const file = join(folder, "cluster.json");
  process.once("exit", () => rmSync(folder, { recursive: true }));
  const run = (wrapper: readonly string[], ...args: readonly string[]) => {
    const [program = "", ...more] = [...wrapper, ...PROGRAM, "flows", "-f", file, ...args];
    return spawnSync(program, more, { encoding: "utf8" });
  };

  before(() => {
    writeFileSync(
      file,
      JSON.stringify({ apiVersion: "v1", kind: "List", items: clusterOf([{ name: "a", number: 1, endpoints: [] }]) }),
    );
    chmodSync(folder, 0o755);
    // Makes the kernel create the namespace's settings.
    execFileSync("conntrack", ["-L"], { stdio: "pipe" });
  });

  test("accounting switched off is said, and not when it is on", () => {
    writeFileSync(`${NETFILTER}/nf_conntrack_acct`, "0");
    const without = run([]);
    assert.deepEqual(
      [without.status, without.stderr.includes("sysctl -w net.netfilter.nf_conntrack_acct=1")],
      [0, true],
    );
    writeFileSync(`${NETFILTER}/nf_conntrack_acct`, "1");
    const { status, stderr } = run([]);
    assert.deepEqual([status, stderr], [0, ""]);
  });

  test("events switched off are said to who waits for them", async (t) => {
    writeFileSync(`${NETFILTER}/nf_conntrack_events`, "0");
    const [program = "", ...more] = PROGRAM;
    const watching = spawn(program, [...more, "flows", "-f", file, "--watch"], { stdio: ["ignore", "ignore", "pipe"] });
    t.after(() => watching.kill("SIGKILL"));
    let said = "";
    watching.stderr.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
    await until("the note", () => said.includes("nf_conntrack_events=1"), { evidence: () => said });
    assert.equal(run([]).stderr, "");
  });

  test("who may not ask, or listen, is told so", () => {
    for (const args of [[], ["--watch"]]) {
      const { status, stdout, stderr } = run(UNPRIVILEGED, ...args);
      assert.deepEqual([status, stdout], [2, ""]);
      assert.match(stderr, /connection tracking cannot be read: .*EPERM.*\nIt needs root on the node\./);
    }
  });
});
