/** One Service stays rejected, and another program empties the chains that all Services share. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { IptablesRestoreError } from "../../kernel/iptables/iptables.ts";
import { BackendBench, clusterIP } from "./testing/backend-bench.ts";

for (const backEnd of ["nft", "legacy"] as const) {
  for (const isRefused of [false, true]) {
    test(`${backEnd}: KUBE-SERVICES is emptied while ${isRefused ? "one service is" : "nothing is"} refused: noticed`, async () => {
      const kernel = new MemoryIptables("IPv4", { backEnd });
      const restore = kernel.restore.bind(kernel);
      kernel.restore = async (payload, options) => {
        const text = [...payload].join("");
        const line = text.split("\n").findIndex((one) => /^-[AI] .*ns\/bad/.test(one)) + 1;
        if (line > 0) throw new IptablesRestoreError("failed", "iptables-restore", 1, `line ${line} failed`, line);
        await restore([text], options);
      };
      const bench = new BackendBench({}, kernel);
      let losses = 0;
      await bench.backend.monitor(() => void losses++, new AbortController().signal);
      bench.set("a", clusterIP(1), 2);
      bench.set("b", clusterIP(2), 2);
      if (isRefused) bench.set("bad", clusterIP(3));
      assert.equal((await bench.sync(true)).failures.length, isRefused ? 1 : 0);
      assert.equal(await bench.isIntact?.(), "present");
      await kernel.restore(["*nat\n-F KUBE-SERVICES\nCOMMIT\n"]);
      const seen = [];
      for (let n = 0; n < 10; n += 1) {
        seen.push(await bench.isIntact?.());
        await bench.sync(); // as a retry would
      }
      assert.ok(seen.includes("absent") || losses > 0, `${seen}: ${kernel.rules("nat", "KUBE-SERVICES").length} rules`);
    });
  }
}
