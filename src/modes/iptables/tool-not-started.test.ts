/** The host lacks a process, memory or a descriptor for the tool, or kills it: no Service is at fault. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createIptables } from "../../kernel/iptables/exec-iptables.ts";
import { type Exec, ExecError, type ExecResult } from "../../kernel/process.ts";
import { silentLogger } from "../../logging/logger.ts";
import { BackendBench, clusterIP } from "./testing/backend-bench.ts";

/** By error code: what each restore does. */
const FAULTS: Readonly<Record<string, () => ExecResult>> = {
  not_started: () => {
    throw new ExecError("not_started", "iptables-restore: could not be started: spawn EAGAIN");
  },
  killed: () => ({ status: -1, stdout: "", stderr: "killed by SIGKILL\n" }),
};

for (const [code, fault] of Object.entries(FAULTS))
  for (const change of ["of one service", "of everything"] as const) {
    test(`restores that are ${code}, in a sync ${change}: it fails, and names no service`, async () => {
      let refusals = 0;
      let restores = 0;
      const exec: Exec = async (file, _args, options) => {
        for (const _ of options?.stdin ?? []);
        if (file === "iptables-restore") {
          restores += 1;
          if (refusals-- > 0) return fault();
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
      await assert.rejects(bench.sync(change === "of everything"), { code });
      assert.equal(restores, 1);
      refusals = 0;
      assert.deepEqual((await bench.sync()).failures, []);
    });
  }
