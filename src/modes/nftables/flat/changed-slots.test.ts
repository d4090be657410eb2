/** For a change of only endpoints, the changes computed without a plan equal the difference between two plans. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { port, remote, sortedEndpoints } from "../../../../testkit/dataplane/test-cluster.ts";
import fc from "../../../../testkit/support/fast-check.ts";
import { elementKey } from "../../../kernel/nftables/ruleset.ts";
import type { Endpoint } from "../../../model/endpoint.ts";
import type { ServicePort } from "../../../model/service-port.ts";
import { ip } from "../../../model/testing/records.ts";
import { TransactionDraft } from "../draft.ts";
import { LAYOUTS } from "../layouts.ts";
import type { PlanFacts } from "../plan-options.ts";
import { NOTHING_INSTALLED } from "../port-objects.ts";
import { TableState } from "../table-state.ts";
import { CONFIGS } from "../testing/backend-rig.ts";
import { changedSlots, planServicePort } from "./plan-service-port.ts";
import { MOST_EXACT } from "./slots.ts";

const CONFIG = CONFIGS.IPv4;
const FACTS: PlanFacts = { zone: "zone-a", nodePortIPs: { kind: "ips", ips: [] }, serviceCIDRs: [] };

/** Set and key → element, in both plans only what differs. */
function difference(one: ServicePort, before: readonly Endpoint[], after: readonly Endpoint[]): Map<string, string> {
  const texts = (endpoints: readonly Endpoint[]): Map<string, string> => {
    const { elements } = planServicePort(one, endpoints, CONFIG, FACTS);
    return new Map(elements.map(({ set, element }) => [`${set} ${elementKey(element.key)}`, JSON.stringify(element)]));
  };
  const [had, has] = [texts(before), texts(after)];
  const changed = new Map<string, string>();
  for (const key of new Set([...had.keys(), ...has.keys()])) {
    if (had.get(key) !== has.get(key)) changed.set(key, `${had.get(key)} → ${has.get(key)}`);
  }
  return changed;
}

function told(one: ServicePort, before: readonly Endpoint[], after: readonly Endpoint[]) {
  const { slots: had } = planServicePort(one, before, CONFIG, FACTS);
  const changed = had && changedSlots(one, had, after, CONFIG, FACTS);
  if (changed === undefined) return undefined;
  assert.deepEqual(changed.slots, planServicePort(one, after, CONFIG, FACTS).slots);
  const { changes } = changed;
  return new Map(changes.map((change) => [`${change.set} ${elementKey(change.after?.key ?? [])}`, change]));
}

const endpoint = fc
  .record({
    last: fc.integer({ min: 1, max: 12 }),
    isLocal: fc.boolean(),
    state: fc.constantFrom("ready", "ready", "ready", "serving", "gone"),
    zoneHints: fc.constantFrom(undefined, undefined, ["zone-a"], ["zone-b"]),
  })
  .map(({ last, isLocal, state, zoneHints }) =>
    remote(`10.180.0.${last}`, {
      isLocal: isLocal && last < 4,
      isReady: state === "ready",
      isServing: state !== "gone",
      isTerminating: state !== "ready",
      zoneHints,
    }),
  );
const endpoints = fc
  .uniqueArray(endpoint, { maxLength: 7, selector: ({ text }) => text })
  .map((list) => sortedEndpoints(list));
const servicePort = fc
  .record({
    externalIPs: fc.constantFrom([], [ip("198.51.100.1")], [ip("10.96.0.1")]),
    loadBalancerVIPs: fc.constantFrom([], [ip("198.51.100.2")]),
    nodePort: fc.constantFrom(0, 30080),
    internalPolicyLocal: fc.boolean(),
    externalPolicyLocal: fc.boolean(),
    sessionAffinity: fc.constantFrom("None" as const, "None" as const, "ClientIP" as const),
  })
  .map((overrides) => port("a", "10.96.0.1", { ...overrides, stickyMaxAgeSeconds: 600 }));

test("what is told of endpoints that change is what the plans differ in", () => {
  let tells = 0;
  let runs = 0;
  fc.assert(
    fc.property(servicePort, endpoints, endpoints, (one, before, after) => {
      runs += 1;
      const changes = told(one, before, after);
      if (changes === undefined) return;
      tells += 1;
      const wanted = difference(one, before, after);
      assert.deepEqual([...changes.keys()].sort(), [...wanted.keys()].sort());
      for (const [key, change] of changes) {
        assert.equal(`${JSON.stringify(change.before)} → ${JSON.stringify(change.after)}`, wanted.get(key));
      }
    }),
    { numRuns: 2000 },
  );
  assert.ok(tells > runs / 50, `${tells} of ${runs} were told`);
});

test("of many endpoints one that replaces another is told, too; what more changes with is not", () => {
  const one = port("a", "10.96.0.1", { nodePort: 30080, externalPolicyLocal: false });
  const all = sortedEndpoints(Array.from({ length: MOST_EXACT + 9 }, (_, n) => remote(`10.180.1.${n + 1}`)));
  const [before, after] = [all.slice(0, -1), all.slice(1)];
  assert.deepEqual(
    [...(told(one, before, after)?.keys() ?? [])].sort(),
    [...difference(one, before, after).keys()].sort(),
  );
  assert.deepEqual([...(told(one, all, after)?.keys() ?? [])].sort(), [...difference(one, all, after).keys()].sort());
  assert.equal(told(one, all.slice(0, 4), all.slice(0, 5)), undefined, "another number of slots");
  const sticky = port("a", "10.96.0.1", { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 600 });
  assert.equal(told(sticky, before, after), undefined, "affinity");
  assert.equal(
    told(one, before, [...before.slice(0, -1), remote("10.180.9.9", { isLocal: true })]),
    undefined,
    "local",
  );
});

test("a state takes what is told of the very port that it has, unless other ports are remembered for the same maps", () => {
  const one = port("a", "10.96.0.1");
  const { key } = one.name;
  const [before, after] = [
    ["10.180.0.1", "10.180.0.2"],
    ["10.180.0.2", "10.180.0.3"],
  ].map((list) => list.map((at) => remote(at)));
  const plan = (planned: ServicePort, list: readonly Endpoint[]) => planServicePort(planned, list, CONFIG, FACTS);
  const state = new TableState({ layout: LAYOUTS.Flat, config: CONFIG, facts: FACTS });
  state.change(new TransactionDraft(), key, {
    services: new Map([[key, one]]),
    endpoints: new Map([[key, before ?? []]]),
  });
  const changes = (now: ServicePort, list: readonly Endpoint[] = []) => {
    const draft = new TransactionDraft();
    const isDone = state.changeSlots(draft, key, {
      services: new Map([[key, now]]),
      endpoints: new Map([[key, list]]),
    });
    return isDone ? [...draft.operations()].length : undefined;
  };
  assert.equal(changes({ ...one }, after), undefined, "another port");
  assert.ok((changes(one, after) ?? 0) > 0);
  assert.equal(changes(one, after), 0, "done");
  assert.deepEqual(state.installed(key)?.elements, plan(one, after ?? []).elements);
  const found = { set: "endpoints-2", element: { key: [ip("10.96.0.1"), "tcp", 80, 0], comment: "ns/b:p" } } as const;
  state.put("b", { ...NOTHING_INSTALLED, elements: [found], isFound: true });
  assert.equal(changes(one, before), undefined, "what a refused port has is remembered");
});
