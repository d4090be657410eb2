/**
 * Any history of Services and EndpointSlices, synced step by step, leaves in the kernel what one full sync of the final
 * objects leaves in an empty one, but for real servers whose connections have not ended; with anything that the kernel refuses and
 * others destroy meanwhile.
 *
 * `KPTS_PROPERTY_RUNS` sets how many histories are tried (per family and kind), `KPTS_PROPERTY_SEED` repeats a run.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { GRACE_PERIOD_MS } from "../../src/modes/ipvs/graceful-termination.ts";
import { SET_IDS, setName } from "../../src/modes/ipvs/names.ts";
import type { NodeState } from "../../src/modes/ipvs/testing/node-state.ts";
import fc, { historyRuns } from "../../testkit/support/fast-check.ts";
import { type Step, stepArbitrary } from "./cluster-arbitrary.ts";
import { IpvsHistory } from "./ipvs-history.ts";

const RUNS = historyRuns("KPTS_PROPERTY_RUNS", 150);

type Happening = Step | { readonly kind: "restart" } | { readonly kind: "connect"; readonly index: number };

function happeningArbitrary(family: "IPv4" | "IPv6"): fc.Arbitrary<Happening> {
  return fc.oneof(
    { weight: 20, arbitrary: stepArbitrary(family) },
    { weight: 3, arbitrary: fc.nat(20).map((index): Happening => ({ kind: "connect", index })) },
    { weight: 1, arbitrary: fc.constant<Happening>({ kind: "restart" }) },
  );
}

/** The state without real servers that wait for connections to end; each of those must have some. Drained ones are wanted as they are. */
function settled(history: IpvsHistory, state: NodeState, wanted: NodeState): NodeState {
  const virtualServers: Record<string, readonly string[]> = {};
  for (const [title, realServers] of Object.entries(state.virtualServers)) {
    virtualServers[title] = realServers.filter((line) => {
      const [server = "", , weight] = line.split(" ");
      if (weight !== "0" || wanted.virtualServers[title]?.includes(line) === true) return true;
      const [name = ""] = title.split(" ");
      assert.ok(name.endsWith("/TCP") && history.isConnected(name, server), `${server} of ${name} need not wait`);
      return false;
    });
  }
  return { ...state, virtualServers };
}

async function assertAsFromNothing(history: IpvsHistory): Promise<void> {
  const wanted = await history.fromNothing();
  assert.deepEqual(settled(history, await history.node.state(), wanted), wanted);
}

async function take(history: IpvsHistory, step: Exclude<Happening, { kind: "sync" }>): Promise<void> {
  if (step.kind === "restart") await history.rig.restart();
  else if (step.kind === "connect") await history.connect(step.index);
  else history.apply(step);
}

for (const family of ["IPv4", "IPv6"] as const) {
  test(`${family}: after every sync the kernel has what a full sync from nothing leaves`, async () => {
    const steps = fc.array(happeningArbitrary(family), { maxLength: 30, size: "max" });
    await fc.assert(
      fc.asyncProperty(steps, fc.constantFrom("rr", "mh"), async (happenings, scheduler) => {
        const history = new IpvsHistory(family, { config: { scheduler } });
        for (const step of [...happenings, { kind: "sync", isFullSync: false } as const]) {
          if (step.kind !== "sync") await take(history, step);
          else {
            assert.deepEqual((await history.sync(step.isFullSync)).failures, []);
            await assertAsFromNothing(history);
          }
        }
        const { ipvs, ipset, iptables } = history.node;
        ipvs.takeOperations();
        ipset.takeOperations();
        const restores = iptables.restoreCount;
        await history.rig.restart();
        await history.sync(true);
        assert.deepEqual([ipvs.takeOperations(), ipset.takeOperations()], [[], []], "a restart changes nothing");
        assert.equal(iptables.restoreCount, restores, "a restart changes no rules");

        history.disconnect();
        history.rig.watch();
        await history.rig.clock.advance(GRACE_PERIOD_MS);
        await history.rig.close();
        assert.deepEqual(await history.node.state(), await history.fromNothing());
      }),
      { numRuns: RUNS },
    );
  });
}

/** The kernel refuses some things for a while. */
interface Refusal {
  readonly kind: "refuse";
  readonly what: "virtual-server" | "real-server" | "set" | "address" | "rules";
  /** Of four, so that some objects are hit and others are not. */
  readonly which: number;
}

/** Another program destroys something; a full sync follows. */
interface Damage {
  readonly kind: "damage";
  readonly what: "virtual-servers" | "set" | "device" | "nat" | "filter" | "module";
  readonly which: number;
}

const faultArbitrary: fc.Arbitrary<Refusal | Damage | { readonly kind: "heal" }> = fc.oneof(
  fc.record({
    kind: fc.constant("refuse" as const),
    what: fc.constantFrom(...(["virtual-server", "real-server", "set", "address", "rules"] as const)),
    which: fc.nat(3),
  }),
  fc.record({
    kind: fc.constant("damage" as const),
    what: fc.constantFrom(...(["virtual-servers", "set", "device", "nat", "filter", "module"] as const)),
    which: fc.nat(SET_IDS.length - 1),
  }),
  fc.constant({ kind: "heal" as const }),
);

class FaultyNode {
  readonly #history: IpvsHistory;
  #healing: (() => void)[] = [];
  #isUnloaded = false;

  constructor(history: IpvsHistory) {
    this.#history = history;
  }

  get isFaulty(): boolean {
    return this.#isUnloaded || this.#healing.length > 0;
  }

  refuse({ what, which }: Refusal): void {
    const { ipvs, ipset, links, iptables } = this.#history.node;
    const isHit = (text: string) => text.length % 4 === which;
    switch (what) {
      case "virtual-server":
        this.#healing.push(
          ipvs.refuse(({ kind, virtualServer }) =>
            kind.endsWith(what) && isHit(virtualServer.address) ? "EPERM" : undefined,
          ),
        );
        return;
      case "real-server":
        this.#healing.push(
          ipvs.refuse((operation) =>
            "realServer" in operation && isHit(operation.realServer.address) ? "ENOMEM" : undefined,
          ),
        );
        return;
      case "set":
        this.#healing.push(ipset.refuse(({ set }) => (isHit(set) ? "ENOMEM" : undefined)));
        return;
      case "address":
        this.#healing.push(links.refuse(({ address }) => (isHit(address) ? "ENOMEM" : undefined)));
        return;
      case "rules":
        iptables.isLocked = true;
        this.#healing.push(() => {
          iptables.isLocked = false;
        });
    }
  }

  async damage({ what, which }: Damage): Promise<void> {
    const { ipvs, ipset, links, iptables, family } = this.#history.node;
    this.#history.rig.driver.requireFullSync();
    switch (what) {
      case "virtual-servers":
        if (!this.#isUnloaded) await ipvs.flush();
        return;
      case "module":
        ipvs.unload();
        this.#isUnloaded = true;
        return;
      case "set": {
        const id = SET_IDS[which];
        if (id === undefined || !ipset.has(setName(id, family))) return;
        return await ipset.flush(setName(id, family));
      }
      case "device":
        return links.deleteForeignLink("kube-ipvs0");
      default:
        if (!iptables.isLocked) iptables.flush(what, { deleteChains: true });
    }
  }

  heal(): void {
    for (const end of this.#healing) end();
    this.#healing = [];
    this.#history.node.ipvs.load();
    this.#isUnloaded = false;
  }
}

for (const family of ["IPv4", "IPv6"] as const) {
  test(`${family}: after refusals and destruction all is right when they end`, async () => {
    type Step = Happening | Refusal | Damage | { readonly kind: "heal" };
    const steps = fc.array(
      fc.oneof(
        { weight: 6, arbitrary: happeningArbitrary(family) as fc.Arbitrary<Step> },
        { weight: 1, arbitrary: faultArbitrary as fc.Arbitrary<Step> },
      ),
      { maxLength: 40, size: "max" },
    );
    await fc.assert(
      fc.asyncProperty(steps, async (happenings) => {
        const history = new IpvsHistory(family);
        const node = new FaultyNode(history);
        for (const step of happenings) {
          if (step.kind === "refuse") node.refuse(step);
          else if (step.kind === "damage") await node.damage(step);
          else if (step.kind === "heal") node.heal();
          else if (step.kind === "connect" && node.isFaulty) continue;
          else if (step.kind !== "sync") await take(history, step);
          else {
            try {
              const { failures } = await history.sync(step.isFullSync);
              if (failures.length > 0) assert.ok(node.isFaulty, JSON.stringify(failures));
            } catch (error) {
              assert.ok(node.isFaulty, String(error));
            }
          }
        }
        node.heal();
        assert.deepEqual((await history.sync(false)).failures, []);
        await assertAsFromNothing(history);
        await history.rig.close();
      }),
      { numRuns: RUNS },
    );
  });
}
