import { canonicalNftables } from "../../../test/conformance/canonical-nftables.ts";
import { runDataplaneContract } from "../../../testkit/dataplane/dataplane-contract.ts";
import { SyncDriver } from "../../../testkit/dataplane/sync-driver.ts";
import { EbpfRig } from "./testing/ebpf-rig.ts";

const NO_MODEL = new SyncDriver({ services: new Map(), endpoints: new Map() });

runDataplaneContract({
  name: "ebpf",
  hasClock: false,
  async open() {
    const rig = new EbpfRig(NO_MODEL);
    return {
      backend: rig.backend,
      state: () => [canonicalNftables(rig.packetPath.kernel.list()), ...rig.backend.socketPath.state],
      takeWrites: () => rig.packetPath.kernel.takeOperations().length + rig.takeMapWrites(),
      refuse: (port) =>
        rig.packetPath.kernel.refuse((operation) =>
          operation.kind === "add-elements" && operation.elements.some(({ comment }) => comment === port.name.text)
            ? { code: "unsupported", isNamed: true }
            : undefined,
        ),
    };
  },
});
