import { MemoryHcn } from "../../../../testkit/fakes/hcn/memory-hcn.ts";
import { runHcnContract } from "./testing/hcn-contract.ts";

runHcnContract({
  name: "in memory",
  async open() {
    const calls = new MemoryHcn();
    const network = calls.addNetwork("cbr0", "L2Bridge", [], ["10.180.0.0/16"]);
    calls.addEndpoint({ name: "pod-1", network, addresses: ["10.180.0.10"] });
    return {
      calls,
      setVersion: async (major, minor) => calls.setVersion({ major, minor }),
      notify: async (type) => calls.notify(type),
    };
  },
});
