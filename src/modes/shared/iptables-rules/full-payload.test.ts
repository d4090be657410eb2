import assert from "node:assert/strict";
import { test } from "node:test";
import type { ChainName } from "../../../kernel/iptables/rule.ts";
import { fullPayload } from "./full-payload.ts";
import { NO_RULES, type SpelledRules } from "./owner-rules.ts";
import { ownerOfLine, type Payload, staleChainOf, staleChainOwner, textsOf } from "./payload.ts";
import type { StaticPlan } from "./rules-plan.ts";

const plan: StaticPlan = {
  filterChains: [],
  natChains: [],
  filterHead: [],
  filterTail: [],
  natHead: [],
  natTail: [{ chain: "TAIL", matches: [], target: { kind: "accept" } }],
};

const spelled = (overrides: Partial<SpelledRules>): SpelledRules => ({ ...NO_RULES, ...overrides });

const textOf = ({ transactions }: Payload) => [...textsOf(transactions)].join("");

test("every line leads to its owner, static lines to none", () => {
  const payload = fullPayload({
    plan,
    ports: [
      [
        "a",
        spelled({
          filter: "-A S a1\n-A S a2\n",
          nat: "-A S a3\n",
          ownChains: ":A - [0:0]\n",
          ownRules: "-A A -j X\n",
          ownRuleCount: 1,
        }),
      ],
      ["b", spelled({ nat: "-A S b\n" })],
    ],
    kept: [["k", { ...NO_RULES, nat: "-A S k\n" }]],
    staleChains: ["OLD" as ChainName],
    heldChains: ["HELD" as ChainName],
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
    [name, spelled({ nat: `-A S ${name}\n`, ownChains: `:${name} - [0:0]\n`, ownRules: `-A ${name} -j X\n` })] as const;
  const payload = fullPayload({ plan, ports: [port("a"), port("b"), port("c")], portsPerTransaction: 2 });
  const tables = textOf(payload).split("COMMIT\n");
  assert.deepEqual(
    tables.map((text) => text.split("\n").filter((line) => line.startsWith("-A"))),
    [[], [], ["-A a -j X", "-A b -j X"], ["-A c -j X"], ["-A S a", "-A S b", "-A S c", "-A TAIL -j ACCEPT"], []],
  );
});

test("a stale chain's owner is told from a service port", () => {
  assert.equal(staleChainOf(staleChainOwner("KUBE-SEP-X" as ChainName)), "KUBE-SEP-X");
  assert.equal(staleChainOf("ns/chain:p/TCP"), undefined);
});
