import { canonicalNftables } from "../../../test/conformance/canonical-nftables.ts";
import { runDataplaneContract } from "../../../testkit/dataplane/dataplane-contract.ts";
import { SyncDriver } from "../../../testkit/dataplane/sync-driver.ts";
import { BackendRig, clusterChain } from "./testing/backend-rig.ts";

const NO_MODEL = new SyncDriver({ services: new Map(), endpoints: new Map() });

runDataplaneContract({
  name: "nftables",
  async open() {
    const { backend, kernel } = new BackendRig(NO_MODEL);
    return {
      backend,
      state: () => canonicalNftables(kernel.list()),
      takeWrites: () => kernel.takeOperations().length,
      refuse: (port) =>
        kernel.refuse((operation) =>
          operation.kind === "add-rule" && operation.chain === clusterChain(port)
            ? { code: "unsupported", isNamed: true }
            : undefined,
        ),
    };
  },
});
