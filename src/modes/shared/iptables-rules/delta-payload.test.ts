import assert from "node:assert/strict";
import { test } from "node:test";
import { deltaPayload } from "./delta-payload.ts";
import { NO_RULES, type SpelledRules, spell } from "./owner-rules.ts";
import { type Payload, textsOf } from "./payload.ts";
import type { SharedRule } from "./rules-plan.ts";

const side = (overrides: Partial<SpelledRules>): SpelledRules => ({ ...NO_RULES, ...overrides });

const toEndpoint = { ownRules: "-A SVC -j SEP-2\n", ownRuleCount: 1 };

const textOf = ({ transactions }: Payload) => [...textsOf(transactions)].join("");

test("a change deletes and inserts its entries of shared chains, in order at the head, and rewrites its own chains", () => {
  const before = side({
    filter: "-A S refuse\n",
    nat: "-A S one\n-A S two\n",
    ownChains: ":SVC - [0:0]\n:SEP-1 - [0:0]\n",
  });
  const after = side({
    nat: "-A S two\n-A S three\n",
    ownChains: ":SVC - [0:0]\n:SEP-2 - [0:0]\n",
    ...toEndpoint,
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
  const same = () => side({ filter: "-A S refuse\n", nat: "-A S one\n" });
  const before = side({ ...same(), ownChains: ":SVC - [0:0]\n" });
  const after = side({ ...same(), ownChains: ":SVC - [0:0]\n", ...toEndpoint });
  assert.equal(textOf(deltaPayload([{ owner: "a", before, after }])), "*nat\n:SVC - [0:0]\n-A SVC -j SEP-2\nCOMMIT\n");
  assert.deepEqual(deltaPayload([{ owner: "a", before: same(), after: same() }]).transactions, []);
  assert.deepEqual(deltaPayload([]).transactions, []);
});

test("one planned entry that differs has all of its table written again", () => {
  const planned = (...texts: string[]): SpelledRules =>
    spell({
      shared: texts.map(
        (text): SharedRule => ({
          table: "nat",
          rule: { chain: "S", matches: [{ kind: "comment", text }], target: { kind: "accept" } },
        }),
      ),
      ownChains: [],
      ownRules: [],
    });
  const before = planned("a", "b");
  const written = (...texts: string[]) => deltaPayload([{ owner: "a", before, after: planned(...texts) }]).written.nat;
  assert.deepEqual([written("a", "b"), written("a", "c"), written("b", "a"), written("a")], [0, 2, 2, 1]);
});
