import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "../../../testkit/support/fast-check.ts";
import { errorCodeOf, failedLineOf, watchCommits } from "./command-errors.ts";

/** What the tools print for a payload with COMMIT in line 7, and the line at fault. */
const MESSAGES: readonly (readonly [output: string, line: number | undefined])[] = [
  [
    "iptables-restore v1.8.9 (legacy): unknown option \"--bogus\"\nError occurred at line: 3\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.",
    3,
  ],
  [
    "iptables-restore v1.8.9 (legacy): Couldn't load match `bogus':No such file or directory\n\nError occurred at line: 3\nTry `iptables-restore -h'",
    3,
  ],
  ["iptables-restore: line 2 failed", 2],
  ["iptables-restore: line 7 failed", undefined],
  ["iptables-nft-restore: line 20003 failed: No chain/target/match by that name.", 20003],
  [
    "iptables-nft-restore v1.8.9 (nf_tables): \nline 4: RULE_APPEND failed (No such file or directory): rule in chain K\nline 5: RULE_APPEND failed (No such file or directory): rule in chain K",
    4,
  ],
  ["ip6tables-restore v1.8.9 (nf_tables): \nline 3: CHAIN_DEL failed (Device or resource busy): chain KUBE-C", 3],
  ["iptables-restore v1.8.4 (nf_tables): \nline 5: CHAIN_USER_DEL failed (Device or resource busy): chain KUBE-C", 5],
  ["iptables-nft-restore v1.8.9 (nf_tables): Chain 'A' does not exist\nError occurred at line: 7\nTry", undefined],
  ["iptables-restore: COMMIT expected at line 3", undefined],
  ["Another app is currently holding the xtables lock. Stopped waiting after 5s.", undefined],
  ["", undefined],
];

test("the line at fault is read from every tool's message, unless it is a COMMIT", () => {
  for (const [output, line] of MESSAGES) assert.equal(failedLineOf(output, [7]), line, output);
});

test("a held lock is told from a refused transaction, though both have status 4", () => {
  const held = "Another app is currently holding the xtables lock. Stopped waiting after 5s.";
  assert.equal(errorCodeOf(4, held), "lock_held");
  assert.equal(errorCodeOf(4, ""), "lock_held");
  assert.equal(
    errorCodeOf(4, "iptables v1.8.9 (nf_tables):  CHAIN_DEL failed (Device or resource busy): chain K"),
    "failed",
  );
  assert.equal(errorCodeOf(1, held), "failed");
});

test("a tool killed from outside is not taken for one that crashed, perhaps because of a rule", () => {
  assert.equal(errorCodeOf(-1, "killed by SIGKILL"), "killed");
  assert.equal(errorCodeOf(-1, "Warning: a table\nkilled by SIGTERM"), "killed");
  for (const said of ["killed by SIGSEGV", "killed by SIGABRT", "killed after 300000 ms"]) {
    assert.equal(errorCodeOf(-1, said), "failed", said);
  }
  assert.equal(errorCodeOf(1, "killed by SIGKILL"), "failed");
});

test("what is missing is told from what failed (iptables-operation.md §10.2)", () => {
  const missing = [
    "iptables: No chain/target/match by that name.",
    "iptables: Bad rule (does a matching rule exist in that chain?).",
    "iptables v1.8.9 (nf_tables): Chain 'KUBE-GONE' does not exist",
    "iptables v1.8.9 (legacy): Couldn't load target `KUBE-GONE':No such file or directory",
    "iptables v1.8.9 (nf_tables): chain `KUBE-NO' in table `nat' is incompatible, use 'nft' tool.",
  ];
  for (const output of missing) assert.equal(errorCodeOf(1, output), "not_found", output);
  assert.equal(errorCodeOf(1, "iptables: Too many links."), "failed");
  assert.equal(errorCodeOf(3, "can't initialize iptables table `nat': Permission denied"), "failed");
});

test("COMMIT lines are counted right however the payload is cut into chunks", () => {
  const line = fc.constantFrom(
    "COMMIT",
    "*nat",
    ":A - [0:0]",
    "-A A -m comment --comment COMMIT",
    "COMMITS",
    "",
    "# COMMIT",
  );
  fc.assert(
    fc.property(fc.array(fc.array(line, { maxLength: 6 }), { maxLength: 6 }), (chunks) => {
      const expected = chunks.flat().flatMap((text, index) => (text === "COMMIT" ? [index + 1] : []));
      const texts = chunks.map((lines) => lines.map((text) => `${text}\n`).join(""));
      const lines: number[] = [];
      assert.deepEqual([...watchCommits(texts, lines)], texts);
      assert.deepEqual(lines, expected);
    }),
  );
});
