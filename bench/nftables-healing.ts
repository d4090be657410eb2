/** How long damage lasts: from another program's commit to the commit of the repair. */

import { SHARED_SETS } from "../src/dataplane/nftables/compatible/plan-static.ts";
import { CHAINS, SETS, servicePortChains, TABLE } from "../src/dataplane/nftables/names.ts";
import { openNetlinkRuleset } from "../src/kernel/nftables/netlink-nftables.ts";
import type { NftOperation } from "../src/kernel/nftables/nftables.ts";
import type { ServicePort } from "../src/model/service-port.ts";
import type { LostRules } from "../src/sync/backend.ts";
import type { HealingFigures, NftablesTask } from "./nftables-figures.ts";
import type { NftSubject } from "./nftables-subject.ts";
import { spread } from "./table.ts";

interface Damage {
  readonly kind: string;
  readonly of: (port: ServicePort) => readonly NftOperation[];
}

const serviceIPs = SHARED_SETS.find(({ name }) => name === SETS.serviceIPs);

const DAMAGES: readonly Damage[] = [
  {
    kind: "rules of a service deleted",
    of: ({ name }) => [{ kind: "flush-chain", chain: servicePortChains(name).cluster }],
  },
  {
    kind: "a foreign rule in a service's chain",
    of: ({ name }) => [
      {
        kind: "add-rule",
        chain: servicePortChains(name).cluster,
        rule: { statements: [{ kind: "verdict", verdict: { kind: "drop" } }] },
      },
    ],
  },
  {
    kind: "an element deleted",
    of: ({ clusterIP, port }) =>
      serviceIPs === undefined ? [] : [{ kind: "delete-elements", set: serviceIPs, keys: [[clusterIP, "tcp", port]] }],
  },
  { kind: "rules of a fixed chain deleted", of: () => [{ kind: "flush-chain", chain: CHAINS.services }] },
  {
    kind: "a base chain deleted",
    of: () => [
      { kind: "flush-chain", chain: "nat-output" },
      { kind: "delete-chain", chain: "nat-output" },
    ],
  },
];

/** The subject must not be watched by anybody else. */
export async function measureHealing(subject: NftSubject, { trials }: NftablesTask): Promise<HealingFigures> {
  // One that was watched before would look at everything first.
  await subject.fullSync(true);
  const others = openNetlinkRuleset();
  const foreign = others.open({ family: "ip", table: TABLE });
  let repair = Promise.withResolvers<void>();
  const onLost = (lost?: LostRules): void => {
    if (lost === undefined) repair.reject(new Error("the damage was not understood"));
    else subject.syncLost(lost).then(repair.resolve, repair.reject);
  };
  const stopWatching = await subject.watch(onLost);
  const ports = [...subject.state.services.values()];
  const kinds: HealingFigures["kinds"][number][] = [];
  try {
    for (const { kind, of } of DAMAGES) {
      const samples: number[] = [];
      let operations = 0;
      for (let trial = 0; trial < trials; trial += 1) {
        const port = ports[subject.scattered(trial)];
        if (port === undefined) throw new Error("there is no such service");
        repair = Promise.withResolvers();
        await foreign.transact(of(port));
        const startMs = performance.now();
        await repair.promise;
        samples.push(performance.now() - startMs);
        operations = Math.max(operations, subject.lastOperations.length);
      }
      kinds.push({ kind, time: spread(samples), operations });
    }
  } finally {
    await stopWatching();
    await others.close();
  }
  return { kinds };
}
