/** The host has no process, memory or descriptor left for the tool for a moment: that is no service's fault. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createIptables } from "../../kernel/iptables/exec-iptables.ts";
import { type Exec, ExecError } from "../../kernel/process.ts";
import { silentLogger } from "../../logging/logger.ts";
import { BackendBench, clusterIP } from "./testing/backend-bench.ts";

for (const change of ["of one service", "of everything"] as const) {
  test(`restores that cannot be started, in a sync ${change}: it fails, and names no service`, async () => {
    let refusals = 0;
    let restores = 0;
    const exec: Exec = async (file, _args, options) => {
      for (const _ of options?.stdin ?? []);
      if (file === "iptables-restore") {
        restores += 1;
        if (refusals-- > 0) throw new ExecError("not_started", `${file}: could not be started: spawn EAGAIN`);
      }
      return { status: 0, stdout: "", stderr: "" };
    };
    const iptables = await createIptables({ family: "IPv4", exec, log: silentLogger });
    const bench = new BackendBench({ iptables });
    for (let n = 1; n <= 8; n += 1) bench.set(`s${n}`, clusterIP(n));
    assert.deepEqual((await bench.sync(true)).failures, []);
    bench.set("s1", clusterIP(1), 2);
    refusals = 6;
    restores = 0;
    await assert.rejects(bench.sync(change === "of everything"), { code: "not_started" });
    assert.equal(restores, 1);
    refusals = 0;
    assert.deepEqual((await bench.sync()).failures, []);
  });
}
