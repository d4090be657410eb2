import { runDataplaneContract } from "../../../testkit/dataplane/dataplane-contract.ts";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import "../../async/testing/test-yielder.ts";
import { IptablesRestoreError } from "../../kernel/iptables/iptables.ts";
import { silentLogger } from "../../logging/logger.ts";
import { IptablesBackend } from "./backend.ts";
import { CONFIG } from "./testing/backend-bench.ts";

function newBackend(iptables: MemoryIptables): IptablesBackend {
  return new IptablesBackend({
    config: CONFIG,
    iptables,
    counters: undefined,
    nodePortIPs: async () => ({ kind: "all" }),
    metrics: {
      restoreFailures: { inc() {} },
      partialRestoreFailures: { inc() {} },
      setTotal() {},
      setLast() {},
    },
    monitor: async () => {},
    log: silentLogger,
    nowMs: () => 0,
  });
}

/** Rejects payloads with a new nat rule for this address and names its line, as the legacy tools do. */
function refuse(kernel: MemoryIptables, address: string): () => void {
  const { restore } = kernel;
  kernel.restore = async (payload, options) => {
    const lines = [...payload].join("").split("\n");
    const at = lines.findIndex((line) => /^-[AI] KUBE-SERVICES /.test(line) && line.includes(`-d ${address} `));
    if (at >= 0) throw new IptablesRestoreError("failed", "iptables-restore", 1, "refused", at + 1);
    await restore.call(kernel, [lines.join("\n")], options);
  };
  return () => {
    kernel.restore = restore;
  };
}

runDataplaneContract({
  name: "iptables",
  async open() {
    const kernel = new MemoryIptables("IPv4");
    let seen = 0;
    return {
      backend: newBackend(kernel),
      // The order of rules in a chain follows the order in which Services arrived; it has no effect.
      state: () => `${kernel.dump("filter")}${kernel.dump("nat")}`.split("\n").sort(),
      takeWrites() {
        const before = seen;
        seen = kernel.restoreCount;
        return seen - before;
      },
      refuse: ({ clusterIP }) => refuse(kernel, clusterIP),
    };
  },
});
