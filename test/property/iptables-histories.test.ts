/**
 * Any history of Services and EndpointSlices, synced step by step, leaves the rules that one full sync of the final
 * objects leaves in an empty kernel.
 *
 * `KPTS_PROPERTY_RUNS` sets how many histories are tried in memory (per family and kind), `KPTS_PROPERTY_SEED` repeats a run.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SyncFailure } from "../../src/contract/backend.ts";
import { isServiceChain, servicePortChains } from "../../src/modes/shared/iptables-rules/chain-names.ts";
import { STATIC_RULES } from "../../src/modes/shared/iptables-rules/transactions.ts";
import type { IpFamily } from "../../src/net/ip.ts";
import { MemoryIptables } from "../../testkit/fakes/iptables/memory-iptables.ts";
import fc, { historyRuns } from "../../testkit/support/fast-check.ts";
import { type Step, stepArbitrary } from "./cluster-arbitrary.ts";
import { ClusterHistory, COUNTER_NAMES, type HistoryOptions } from "./cluster-history.ts";
import { ruleDifferences, rulesOfOwner, withEndpointChains } from "./comparable-rules.ts";
import { FaultyIptables, type Refusal } from "./faulty-iptables.ts";

const RUNS = historyRuns("KPTS_PROPERTY_RUNS", 300);

function optionsArbitrary(
  family: IpFamily,
  largeClusterEndpoints: readonly (number | undefined)[],
): fc.Arbitrary<HistoryOptions> {
  return fc.record({
    family: fc.constant(family),
    detector: fc.constantFrom("cidr", "interface", "none"),
    masqueradeAll: fc.boolean(),
    localhostNodePorts: fc.boolean(),
    hasCounters: fc.boolean(),
    largeClusterEndpoints: fc.constantFrom(...largeClusterEndpoints),
    portsPerTransaction: fc.constantFrom(undefined, 1, 2),
  });
}

async function assertAsFromScratch(history: ClusterHistory, kernel: MemoryIptables, options: HistoryOptions) {
  const { kernel: fresh, totals } = await history.fromScratch();
  const ignoresCommentsOfEndpoints = options.largeClusterEndpoints !== undefined;
  for (const table of ["filter", "nat"] as const) {
    const found = ruleDifferences(kernel.dump(table), fresh.dump(table), { ignoresCommentsOfEndpoints });
    assert.equal(found.join("\n\n"), "", table);
  }
  assert.deepEqual(history.totals, totals);
}

for (const family of ["IPv4", "IPv6"] as const) {
  test(`${family}: after every sync the rules are those of a full sync from nothing`, async () => {
    await fc.assert(
      fc.asyncProperty(
        optionsArbitrary(family, [undefined, undefined, 6]),
        fc.array(stepArbitrary(family), { maxLength: 30, size: "max" }),
        async (options, steps) => {
          const kernel = new MemoryIptables(family, { counters: options.hasCounters ? COUNTER_NAMES : new Set() });
          const history = new ClusterHistory(options, kernel);
          for (const step of [...steps, { kind: "sync", isFullSync: false } as const]) {
            if (step.kind !== "sync") {
              history.apply(step);
              continue;
            }
            const { failures } = await history.sync(step.isFullSync);
            assert.deepEqual(failures, []);
            await assertAsFromScratch(history, kernel, options);
          }
          assert.equal(history.restoreFailures, 0);
        },
      ),
      { numRuns: RUNS },
    );
  });
}

type Fault =
  | { readonly kind: "refuse"; readonly refusal: Refusal }
  /** A foreign rule jumps to the nth chain of a service port, which therefore cannot be deleted. */
  | { readonly kind: "hold"; readonly index: number }
  | { readonly kind: "lock" | "heal" }
  /** Another program's `iptables -F`, with or without `-X`. */
  | { readonly kind: "flush"; readonly table: "filter" | "nat"; readonly deleteChains: boolean };

function faultArbitrary(extents: readonly Refusal["extent"][]): fc.Arbitrary<Fault> {
  const refusal = fc.record({
    service: fc.constantFrom("ns1/a", "ns1/b", "ns2/a"),
    table: fc.constantFrom("filter", "nat", "nat"),
    extent: fc.constantFrom(...extents),
    namesLine: fc.boolean(),
  });
  return fc.oneof(
    { weight: 4, arbitrary: refusal.map((one): Fault => ({ kind: "refuse", refusal: one })) },
    { weight: 2, arbitrary: fc.nat(20).map((index): Fault => ({ kind: "hold", index })) },
    { weight: 1, arbitrary: fc.constant<Fault>({ kind: "lock" }) },
    { weight: 2, arbitrary: fc.constant<Fault>({ kind: "heal" }) },
    {
      weight: 1,
      arbitrary: fc.record({
        kind: fc.constant("flush"),
        table: fc.constantFrom("filter", "nat"),
        deleteChains: fc.boolean(),
      }),
    },
  );
}

/** The rules in force for everybody but these must be what they are without faults. */
async function assertOthersAreRight(history: ClusterHistory, kernel: MemoryIptables, failed: ReadonlySet<string>) {
  const { kernel: fresh } = await history.fromScratch();
  const [filter, nat] = [fresh.dump("filter"), fresh.dump("nat")];
  for (const name of history.servicePorts) {
    if (failed.has(name.text)) continue;
    const owner = `${name.text} ${name.protocol.toLowerCase()}`;
    const chains = withEndpointChains(nat, Object.values(servicePortChains(name)));
    assert.equal(rulesOfOwner(kernel.dump("filter"), owner, chains), rulesOfOwner(filter, owner, chains), owner);
    assert.equal(rulesOfOwner(kernel.dump("nat"), owner, chains), rulesOfOwner(nat, owner, chains), owner);
  }
}

const FOREIGN = "FOREIGN-CHAIN";

class FaultyNode {
  readonly iptables: FaultyIptables;
  readonly #held = new Set<string>();
  isLocked = false;

  constructor(iptables: FaultyIptables) {
    this.iptables = iptables;
  }

  async take(fault: Fault, history: ClusterHistory): Promise<void> {
    const { iptables } = this;
    const { kernel } = iptables;
    switch (fault.kind) {
      case "refuse":
        iptables.refuse(fault.refusal);
        return;
      case "hold": {
        const chains = kernel.chains("nat").filter((chain) => isServiceChain(chain));
        const chain = chains[fault.index % chains.length];
        if (chain === undefined) return;
        await kernel.ensureChain("nat", FOREIGN);
        await kernel.ensureRule("nat", FOREIGN, ["-j", chain]);
        this.#held.add(chain);
        return;
      }
      case "lock":
        this.isLocked = true;
        return;
      case "flush":
        // `-X` cannot delete chains that a rule jumps to; `-F` has removed those rules.
        kernel.flush(fault.table, { deleteChains: fault.deleteChains });
        if (fault.table === "nat") this.#held.clear();
        history.loseRules();
        return;
      case "heal":
        await this.heal();
    }
  }

  async heal(): Promise<void> {
    const { kernel } = this.iptables;
    this.iptables.heal();
    this.isLocked = false;
    for (const chain of this.#held) await kernel.deleteRule("nat", FOREIGN, ["-j", chain]);
    if ((await kernel.chainPresence("nat", FOREIGN)) === "present") await kernel.deleteChain("nat", FOREIGN);
    this.#held.clear();
  }

  /** Whether a failure is one that was asked for. */
  isExpected(subject: string): boolean {
    const chain = /^chain (\S+)$/.exec(subject)?.[1];
    if (chain !== undefined) return this.#held.has(chain);
    // The rules around an entry that must not even be written again cannot be rewritten either.
    if (subject === STATIC_RULES) return this.iptables.refusals.some(({ extent }) => extent === "any");
    // What is left of a port that is gone goes by its key.
    return this.iptables.refusals.some(
      ({ service }) =>
        subject === service || (/^[:/]/.test(subject.slice(service.length)) && subject.startsWith(service)),
    );
  }
}

/** One sync under faults. */
async function syncFaulty(node: FaultyNode, history: ClusterHistory, isFullSync: boolean): Promise<void> {
  const { kernel } = node.iptables;
  const isLocked = node.isLocked;
  kernel.isLocked = isLocked;
  node.isLocked = false;
  let failures: readonly SyncFailure[];
  try {
    ({ failures } = await history.sync(isFullSync));
  } catch (error) {
    if (isLocked) assert.match(String(error), /xtables lock/);
    // No port is left to be programmed.
    else
      assert.ok(
        history.servicePorts.every(({ text }) => node.isExpected(text)),
        String(error),
      );
    return;
  } finally {
    kernel.isLocked = false;
  }
  for (const { subject } of failures) assert.ok(node.isExpected(subject), `${subject} is no service's fault`);
  await assertOthersAreRight(history, kernel, new Set(failures.map(({ subject }) => subject)));
}

for (const backEnd of ["nft", "legacy"] as const) {
  for (const extent of ["new", "any"] as const) {
    test(`refused rules (${extent}; ${backEnd}): the others are right at once, and all are when it ends`, async () => {
      await fc.assert(
        fc.asyncProperty(
          optionsArbitrary("IPv4", [undefined]),
          fc.array(
            fc.oneof(
              { weight: 5, arbitrary: stepArbitrary("IPv4") },
              { weight: 1, arbitrary: faultArbitrary([extent]) },
            ),
            {
              maxLength: 30,
              size: "max",
            },
          ),
          async (options, steps) => {
            const counters = options.hasCounters ? COUNTER_NAMES : new Set<string>();
            const kernel = new MemoryIptables("IPv4", { counters, backEnd });
            const node = new FaultyNode(new FaultyIptables(kernel));
            const history = new ClusterHistory(options, node.iptables);
            for (const step of steps) {
              if (step.kind === "sync") await syncFaulty(node, history, step.isFullSync);
              else if (isFault(step)) await node.take(step, history);
              else history.apply(step);
            }
            await node.heal();
            assert.deepEqual((await history.sync(false)).failures, []);
            await assertAsFromScratch(history, kernel, options);
          },
        ),
        { numRuns: RUNS / 5 },
      );
    });
  }
}

function isFault(step: Step | Fault): step is Fault {
  return ["refuse", "hold", "lock", "heal", "flush"].includes(step.kind);
}
