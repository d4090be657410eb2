import { runDataplaneContract } from "../../../testkit/dataplane/dataplane-contract.ts";
import { ip } from "../../model/testing/records.ts";
import { BackendRig, HOST } from "./testing/backend-rig.ts";
import { rigState } from "./testing/rig-state.ts";

for (const rules of ["iptables", "none"] as const) {
  runDataplaneContract({
    name: `userspace with rules ${rules}`,
    async open() {
      const rig = new BackendRig({ rules });
      if (rules === "iptables") await rig.rules.start();
      let seen = { restores: 0, sockets: "" };
      return {
        backend: rig.backend,
        state: () => rigState(rig),
        takeWrites() {
          const before = seen;
          seen = { restores: rig.iptables.restoreCount, sockets: rig.openSockets.join() };
          return seen.restores - before.restores + Number(seen.sockets !== before.sockets);
        },
        // Another program holds its node port.
        refuse({ nodePort }) {
          const taken = rig.relays.takePort("TCP", ip(HOST[1] ?? ""), nodePort);
          return () => taken[Symbol.dispose]();
        },
      };
    },
  });
}
