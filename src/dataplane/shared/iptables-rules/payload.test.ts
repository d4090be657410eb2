import assert from "node:assert/strict";
import { test } from "node:test";
import { deltaPayload, fullPayload, ownerOfLine, type Payload, staleChainOf, staleChainOwner } from "./payload.ts";
import type { PortRules } from "./port-rules.ts";
import type { StaticPlan } from "./rules-plan.ts";

const plan: StaticPlan = {
  filterChains: [],
  natChains: [],
  filterHead: [],
  filterTail: [],
  natHead: [],
  natTail: [{ chain: "TAIL", matches: [], target: { kind: "accept" } }],
};

function rules(overrides: Partial<PortRules>): PortRules {
  return {
    filterShared: "",
    natShared: "",
    ownChains: "",
    ownRuleCount: 0,
    lacksInternal: false,
    lacksExternal: false,
    ownText: "",
    ...overrides,
  };
}

const textOf = ({ parts }: Payload) => parts.map(({ text }) => text).join("");

test("a change deletes and inserts its entries of shared chains, in order at the head, and rewrites its own chains", () => {
  const before = rules({ filterShared: "S refuse", natShared: "S one\nS two", ownChains: "SVC\nSEP-1" });
  const after = rules({
    natShared: "S two\nS three",
    ownChains: "SVC\nSEP-2",
    ownText: "-A SVC -j SEP-2\n",
    ownRuleCount: 1,
  });
  const payload = deltaPayload([{ owner: "a", before, after }]);
  assert.equal(
    textOf(payload),
    `*filter
-D S refuse
COMMIT
*nat
:SVC - [0:0]
:SEP-2 - [0:0]
:SEP-1 - [0:0]
-D S one
-D S two
-I S three
-I S two
-A SVC -j SEP-2
-X SEP-1
COMMIT
`,
  );
  assert.deepEqual(payload.written, { filter: 0, nat: 3 });
});

test("entries that stay are not touched, and nothing to do makes an empty payload", () => {
  const same = rules({ filterShared: "S refuse", natShared: "S one" });
  const before = { ...same, ownChains: "SVC" };
  const after = { ...same, ownChains: "SVC", ownText: "-A SVC -j ACCEPT\n", ownRuleCount: 1 };
  assert.equal(textOf(deltaPayload([{ owner: "a", before, after }])), "*nat\n:SVC - [0:0]\n-A SVC -j ACCEPT\nCOMMIT\n");
  assert.deepEqual(deltaPayload([{ owner: "a", before: same, after: same }]).parts, []);
  assert.deepEqual(deltaPayload([]).parts, []);
});

test("every line leads to its owner, static lines to nobody", () => {
  const payload = fullPayload({
    plan,
    ports: [
      [
        "a",
        rules({
          filterShared: "S a1\nS a2",
          ownChains: "A",
          natShared: "S a3",
          ownText: "-A A -j X\n",
          ownRuleCount: 1,
        }),
      ],
      ["b", rules({ natShared: "S b" })],
    ],
    kept: [{ owner: "k", rules: rules({ natShared: "S k" }) }],
    staleChains: ["OLD"],
    heldChains: ["HELD"],
  });
  const owners = textOf(payload)
    .trimEnd()
    .split("\n")
    .map((line, index) => `${ownerOfLine(payload, index + 1) ?? "-"}: ${line}`);
  assert.deepEqual(owners, [
    "-: *filter",
    "a: -A S a1",
    "a: -A S a2",
    "-: COMMIT",
    "-: *nat",
    "a: :A - [0:0]",
    "chain OLD: :OLD - [0:0]",
    "chain HELD: :HELD - [0:0]",
    "a: -A S a3",
    "a: -A A -j X",
    "b: -A S b",
    "k: -A S k",
    "chain OLD: -X OLD",
    "-: -A TAIL -j ACCEPT",
    "-: COMMIT",
  ]);
  assert.equal(ownerOfLine(payload, 16), undefined);
  assert.deepEqual(payload.written, { filter: 2, nat: 5 });
});

test("in pieces, own chains come in transactions of so many ports, before the one that leads to them", () => {
  const port = (name: string) =>
    [name, rules({ natShared: `S ${name}`, ownChains: name, ownText: `-A ${name} -j X\n`, ownRuleCount: 1 })] as const;
  const payload = fullPayload({ plan, ports: [port("a"), port("b"), port("c")], portsPerTransaction: 2 });
  const tables = textOf(payload).split("COMMIT\n");
  assert.deepEqual(
    tables.map((text) => text.split("\n").filter((line) => line.startsWith("-A"))),
    [[], [], ["-A a -j X", "-A b -j X"], ["-A c -j X"], ["-A S a", "-A S b", "-A S c", "-A TAIL -j ACCEPT"], []],
  );
});

test("a stale chain's owner is told from a service port", () => {
  assert.equal(staleChainOf(staleChainOwner("KUBE-SEP-X")), "KUBE-SEP-X");
  assert.equal(staleChainOf("ns/chain:p/TCP"), undefined);
});
