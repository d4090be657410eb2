/** Services that ask for a hash: their rules, and what happens where no rule can match one. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { MemoryIptables } from "../../../testkit/fakes/iptables/memory-iptables.ts";
import { readHashProgram } from "../../kernel/iptables/hash-program.ts";
import { IptablesRestoreError } from "../../kernel/iptables/iptables.ts";
import { ALL_HASHES, hashTurns } from "../../model/hash-order.ts";
import { makeEndpoint, makeServicePort } from "../../model/testing/records.ts";
import { endpointChain } from "../shared/iptables-rules/chain-names.ts";
import { planServicePort } from "./plan-service-port.ts";
import { BackendBench, CONFIG, clusterIP } from "./testing/backend-bench.ts";

const FACTS = {
  zone: undefined,
  nodePortIPs: { kind: "all" },
  counters: { ctStateInvalid: false, localhostNodePorts: false },
  isLargeCluster: false,
} as const;
const BPF = /-m bpf --bytecode/;

function choiceOf(port: Parameters<typeof makeServicePort>[0], weights: readonly number[] = [], facts = {}) {
  const endpoints = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map((address, index) =>
    makeEndpoint(address, 80, weights[index] === undefined ? {} : { weight: weights[index] }),
  );
  const service = makeServicePort(port);
  const { ownRules } = planServicePort(service, endpoints, CONFIG, { ...FACTS, ...facts });
  const rules = ownRules.filter(({ chain }) => chain.startsWith("KUBE-SVC-"));
  const endpointOf = (chain: string) => endpoints.find((one) => endpointChain(service.name, one) === chain);
  return { endpoints, rules, endpointOf };
}

describe("a Service that asks for a hash", () => {
  for (const [balancing, isFlow] of [
    ["SourceHash", false],
    ["FlowHash", true],
  ] as const) {
    test(`${balancing}: one rule for each endpoint in the order of the hash, the last without a condition`, () => {
      const { rules, endpoints, endpointOf } = choiceOf({ balancing }, [1, 2, 7]);
      const turns = hashTurns(endpoints, CONFIG.hashSeed);
      const chosen = rules.filter(({ target }) => target.kind === "jump" && target.chain.startsWith("KUBE-SEP-"));
      const found = chosen.map(({ matches, target }) => {
        const hash = matches.find(({ kind }) => kind === "bytecode");
        const program = hash?.kind === "bytecode" ? readHashProgram(hash.code, "IPv4") : undefined;
        return [target.kind === "jump" ? endpointOf(target.chain)?.text : "", program];
      });
      const wanted = turns.map(({ endpoint, seed, below }) => [
        endpoint.text,
        below === ALL_HASHES ? undefined : { family: "IPv4", isFlow, seed, below },
      ]);
      assert.deepEqual(found, wanted);
    });
  }

  test("asks the entries of session affinity first", () => {
    const { rules } = choiceOf({ balancing: "SourceHash", sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 60 });
    const kinds = rules.map(({ matches }) =>
      matches
        .map(({ kind }) => kind)
        .filter((kind) => kind !== "comment")
        .join(),
    );
    assert.deepEqual(kinds.slice(-6), [...Array<string>(3).fill("recent-check"), "bytecode", "bytecode", ""]);
  });

  test("has the rules of chance where no rule can match a hash, and they are those of a Service that does not ask", () => {
    assert.deepEqual(choiceOf({ balancing: "FlowHash" }, [], { canHash: false }).rules, choiceOf({}).rules);
  });
});

describe("whether rules can match a hash", () => {
  const sent = async (bench: BackendBench, full: boolean) => {
    const { failures } = await bench.sync(full);
    assert.deepEqual(failures, []);
    return bench.sent();
  };

  test("is tried once, when a Service asks, and leaves nothing", async () => {
    const bench = new BackendBench();
    bench.set("a", clusterIP(1), 2);
    assert.ok((await sent(bench, true)).every((text) => !BPF.test(text)));
    bench.set("b", { ...clusterIP(2), balancing: "SourceHash" }, 2);
    const [trial = "", ...others] = await sent(bench, false);
    assert.match(trial, BPF);
    assert.ok(others.some((text) => BPF.test(text)));
    assert.ok(!bench.kernel.chains("nat").includes("KUBE-SVC-HASHTRIAL"));
    bench.set("b", { ...clusterIP(2), balancing: "SourceHash" }, 3);
    const again = await sent(bench, false);
    assert.ok(!again.join("").includes("HASHTRIAL"));
    // Only the chains of the Service that changed are written.
    assert.ok(!again.join("").includes("ns/a"));
    assert.deepEqual([bench.warnings, bench.errors], [[], []]);
  });

  for (const full of [true, false]) {
    test(`if not, endpoints are chosen at random, which the log says once (${full ? "full" : "partial"} sync)`, async () => {
      const kernel = new MemoryIptables("IPv4");
      const { restore } = kernel;
      kernel.restore = async (payload, options) => {
        const text = [...payload].join("");
        const line = text.split("\n").findIndex((one) => BPF.test(one)) + 1;
        if (line > 0)
          throw new IptablesRestoreError("failed", "iptables-restore", 2, "Couldn't load match `bpf'", line);
        await restore.call(kernel, [text], options);
      };
      const bench = new BackendBench({}, kernel);
      bench.set("a", clusterIP(1), 2);
      await sent(bench, true);
      bench.set("b", { ...clusterIP(2), balancing: "FlowHash" }, 2);
      await sent(bench, full);
      bench.set("b", { ...clusterIP(2), balancing: "FlowHash" }, 3);
      await sent(bench, full);
      const rules = (await kernel.save("nat")).split("\n").filter((rule) => rule.includes("ns/b"));
      assert.equal(rules.filter((rule) => rule.includes("--mode random")).length, 2);
      assert.equal(bench.errors.length, 1);
      assert.match(
        bench.errors[0] ?? "",
        /^No rule can match a hash: Services that ask for one have their endpoints at random/,
      );
    });
  }
});
