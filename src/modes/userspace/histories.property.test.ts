/** After any history, the state is that of one full sync from nothing, except for the proxy ports. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { ip } from "../../model/testing/records.ts";
import { BackendRig, type RigOptions } from "./testing/backend-rig.ts";
import { rigState } from "./testing/rig-state.ts";

const NAMES = ["a", "b", "c", "d"] as const;
const addresses = fc.constantFrom("192.168.1.5", "203.0.113.5", "203.0.113.6").map(ip);

const port = fc.record({
  clusterIP: fc.constantFrom("172.16.0.1", "172.16.0.2", "172.16.0.3", "172.16.0.4").map(ip),
  port: fc.constantFrom(80, 81),
  nodePort: fc.constantFrom(0, 30080, 30081),
  protocol: fc.constantFrom("TCP" as const, "UDP" as const, "SCTP" as const),
  externalIPs: fc.uniqueArray(addresses, { maxLength: 2 }),
  loadBalancerVIPs: fc.uniqueArray(addresses, { maxLength: 2 }),
  sessionAffinity: fc.constantFrom("None" as const, "ClientIP" as const),
  stickyMaxAgeSeconds: fc.constantFrom(0, 10),
});
const endpoints = fc.subarray(["10.0.0.1", "10.0.0.2", "10.0.0.3"]);

type Step =
  | {
      readonly kind: "set";
      readonly name: string;
      readonly port: Parameters<BackendRig["set"]>[1];
      readonly endpoints: string[];
    }
  | { readonly kind: "remove"; readonly name: string }
  | { readonly kind: "host"; readonly addresses: readonly string[] }
  | { readonly kind: "taken"; readonly isTaken: boolean }
  | { readonly kind: "locked" }
  | { readonly kind: "full" };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constant("set" as const), name: fc.constantFrom(...NAMES), port, endpoints }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("remove" as const), name: fc.constantFrom(...NAMES) }) },
  fc.record({
    kind: fc.constant("host" as const),
    addresses: fc.subarray(["192.168.1.5", "203.0.113.5", "172.16.0.1"]),
  }),
  fc.record({ kind: fc.constant("taken" as const), isTaken: fc.boolean() }),
  fc.constant({ kind: "locked" as const }),
  fc.constant({ kind: "full" as const }),
);

for (const rules of ["iptables", "none"] as const) {
  test(`${rules}: any history ends where a full sync from nothing ends`, async () => {
    const options: RigOptions = { rules };
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 14 }), async (steps) => {
        const rig = new BackendRig(options);
        const keys = new Map<string, string>();
        let taken: Disposable | undefined;
        await rig.sync();
        for (const one of steps) {
          let isLocked = false;
          if (one.kind === "set") {
            // Another protocol means another key.
            const before = keys.get(one.name);
            if (before !== undefined) rig.remove(before);
            keys.set(one.name, rig.set(one.name, one.port, one.endpoints));
          } else if (one.kind === "remove") rig.remove(keys.get(one.name) ?? "");
          else if (one.kind === "host") rig.hostAddresses = one.addresses;
          else if (one.kind === "locked") isLocked = true;
          else if (one.kind === "taken") {
            taken?.[Symbol.dispose]();
            const isFree = !rig.openSockets.some((socket) => socket.includes("TCP 0.0.0.0:30080"));
            taken = one.isTaken && isFree ? rig.relays.takePort("TCP", ip("192.168.1.5"), 30080) : undefined;
          }
          rig.iptables.isLocked = isLocked;
          await rig
            .sync({ full: one.kind === "full" })
            .catch((error: unknown) => assert.equal(isLocked, true, String(error)));
          rig.iptables.isLocked = false;
        }
        taken?.[Symbol.dispose]();
        await rig.sync();
        const fresh = new BackendRig(options);
        fresh.hostAddresses = rig.hostAddresses;
        for (const [key, value] of rig.cluster.declared) fresh.cluster.set(value, rig.cluster.endpoints.get(key));
        if (rules === "iptables") await fresh.rules.start();
        await fresh.sync({ full: true });
        assert.deepEqual(rigState(rig), rigState(fresh));
        assert.equal(rig.totals.filter + rig.totals.nat, rig.portalRules.length);
      }),
      { numRuns: 150 },
    );
  });
}
