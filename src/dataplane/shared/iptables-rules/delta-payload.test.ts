import assert from "node:assert/strict";
import { test } from "node:test";
import type { ChainName, Rule } from "../../../kernel/iptables/rule.ts";
import { deltaPayload, type OwnerStep } from "./delta-payload.ts";
import type { InstalledRule } from "./installed-rules.ts";
import { type Payload, textsOf } from "./payload.ts";

type Side = NonNullable<OwnerStep["after"]>;

function side(overrides: Partial<Side>): Side {
  return { shared: [], ownChains: [], ownRules: [], ...overrides };
}

/** An entry of the chain S, in nat unless told. */
const entry = (printed: string, table: "filter" | "nat" = "nat"): InstalledRule => ({
  table,
  rule: { chain: "S", printed },
});
const chains = (...names: string[]) => names as ChainName[];
const toEndpoint: Rule = { chain: "SVC", matches: [], target: { kind: "jump", chain: "SEP-2" } };

const textOf = ({ transactions }: Payload) => [...textsOf(transactions)].join("");

test("a change deletes and inserts its entries of shared chains, in order at the head, and rewrites its own chains", () => {
  const before = side({
    shared: [entry("refuse", "filter"), entry("one"), entry("two")],
    ownChains: chains("SVC", "SEP-1"),
  });
  const after = side({
    shared: [entry("two"), entry("three")],
    ownChains: chains("SVC", "SEP-2"),
    ownRules: [toEndpoint],
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
  const same = () => side({ shared: [entry("refuse", "filter"), entry("one")] });
  const before = side({ ...same(), ownChains: chains("SVC") });
  const after = side({ ...same(), ownChains: chains("SVC"), ownRules: [toEndpoint] });
  assert.equal(textOf(deltaPayload([{ owner: "a", before, after }])), "*nat\n:SVC - [0:0]\n-A SVC -j SEP-2\nCOMMIT\n");
  assert.deepEqual(deltaPayload([{ owner: "a", before: same(), after: same() }]).transactions, []);
  assert.deepEqual(deltaPayload([]).transactions, []);
});

test("planned entries are compared match by match: one that differs has all of its table written again", () => {
  const rule = (text: string): InstalledRule => ({
    table: "nat",
    rule: { chain: "S", matches: [{ kind: "comment", text }], target: { kind: "accept" } },
  });
  const before = side({ shared: [rule("a"), rule("b")] });
  const written = (...texts: string[]) =>
    deltaPayload([{ owner: "a", before, after: side({ shared: texts.map(rule) }) }]).written.nat;
  assert.deepEqual([written("a", "b"), written("a", "c"), written("b", "a"), written("a")], [0, 2, 2, 1]);
});

test("the entries that an owner had are asked for once: they may have to be planned", () => {
  let asked = 0;
  const before = {
    ...side({}),
    get shared() {
      asked += 1;
      return [entry("one", "filter"), entry("two")];
    },
  };
  const payload = deltaPayload([{ owner: "a", before, after: side({}) }]);
  assert.equal(textOf(payload), "*filter\n-D S one\nCOMMIT\n*nat\n-D S two\nCOMMIT\n");
  assert.equal(asked, 1);
});
