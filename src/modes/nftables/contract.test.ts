import { canonicalNftables } from "../../../test/conformance/canonical-nftables.ts";
import { runDataplaneContract } from "../../../testkit/dataplane/dataplane-contract.ts";
import { SyncDriver } from "../../../testkit/dataplane/sync-driver.ts";
import type { NftOperation } from "../../kernel/nftables/nftables.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { LAYOUT_NAMES } from "./layout-name.ts";
import { BackendRig, clusterChain } from "./testing/backend-rig.ts";

const NO_MODEL = new SyncDriver({ services: new Map(), endpoints: new Map() });

/** Whether an operation gives the service port endpoints, in either layout. */
function leadsToEndpoints(operation: NftOperation, port: ServicePort): boolean {
  if (operation.kind === "add-rule") return operation.chain === clusterChain(port);
  if (operation.kind !== "add-elements") return false;
  return operation.elements.some(({ target, comment }) => target !== undefined && comment === port.name.text);
}

for (const layout of LAYOUT_NAMES) {
  runDataplaneContract({
    name: `nftables, ${layout}`,
    hasClock: false,
    async open() {
      const { backend, kernel } = new BackendRig(NO_MODEL, { layout });
      return {
        backend,
        state: () => canonicalNftables(kernel.list()),
        takeWrites: () => kernel.takeOperations().length,
        refuse: (port) =>
          kernel.refuse((operation) =>
            leadsToEndpoints(operation, port) ? { code: "unsupported", isNamed: true } : undefined,
          ),
      };
    },
  });
}
