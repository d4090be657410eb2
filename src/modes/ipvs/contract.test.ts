import { runDataplaneContract } from "../../../testkit/dataplane/dataplane-contract.ts";
import { SyncDriver } from "../../../testkit/dataplane/sync-driver.ts";
import { BackendRig } from "./testing/backend-rig.ts";

const NO_MODEL = new SyncDriver({ services: new Map(), endpoints: new Map() });

runDataplaneContract({
  name: "ipvs",
  async open() {
    const { backend, node } = new BackendRig(NO_MODEL);
    return {
      backend,
      state: () => node.state(),
      takeWrites: () => Object.values(node.takeCosts()).reduce((sum, count) => sum + count, 0),
      refuse: ({ clusterIP }) =>
        node.ipvs.refuse(({ virtualServer }) => (virtualServer.address === clusterIP ? "EPERM" : undefined)),
    };
  },
});
