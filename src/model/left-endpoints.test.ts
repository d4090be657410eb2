import assert from "node:assert/strict";
import { test } from "node:test";
import { type Evidence, type LeaveDecision, LeavePolicy, type ProbeOutcome } from "./left-endpoints.ts";

const BOUNDS = { mostLeft: 1 / 2, mostSilentNodes: 1 / 2, backOffMs: 10_000, longestBackOffMs: 300_000 };
const KEY = "ns/web:http";

/** A policy whose endpoints are on the named nodes, `own` being this one; looks are half a second apart. */
class Node {
  readonly #policy: LeavePolicy;
  readonly #probe: (endpoint: string) => ProbeOutcome;
  readonly left = new Set<string>();
  #nowMs = 0;
  #probes: readonly string[] = [];

  constructor(
    nodes: Readonly<Record<string, string>>,
    probe: (endpoint: string) => ProbeOutcome,
    bounds: Partial<typeof BOUNDS> = {},
  ) {
    this.#policy = new LeavePolicy({ ...BOUNDS, ...bounds });
    this.#probe = probe;
    this.watch(nodes);
    this.look([]);
    this.look([]);
  }

  watch(nodes: Readonly<Record<string, string>>): void {
    const members = Object.entries(nodes).map(([endpoint, nodeName]) => ({
      endpoint,
      nodeName,
      isLocal: nodeName === "own",
    }));
    this.#policy.watch([{ key: KEY, members }]);
  }

  look(evidence: readonly Evidence[]): LeaveDecision {
    this.#nowMs += 500;
    for (const endpoint of this.#probes) this.#policy.probed(endpoint, this.#probe(endpoint), this.#nowMs);
    this.#policy.see(evidence, this.#nowMs);
    const decision = this.#policy.decide(this.#nowMs);
    this.#probes = decision.probes;
    for (const { kind, endpoint } of decision.changes)
      if (kind === "left") this.left.add(endpoint);
      else this.left.delete(endpoint);
    return decision;
  }

  /** Clients in vain at these endpoints, for four looks. @returns the last decision. */
  silence(
    endpoints: readonly string[],
    sources = ["0", "1"],
  ): { readonly left: readonly string[]; readonly held: readonly string[] } {
    const evidence = endpoints.flatMap((endpoint) =>
      sources.map((source): Evidence => ({ kind: "unanswered", endpoint, source, count: 2 })),
    );
    const { held } = [1, 2, 3, 4].map(() => this.look(evidence)).at(-1) ?? { held: [] };
    return { left: [...this.left], held };
  }
}

const never = () => "failed" as const;
const FOUR = { a: "own", b: "one", c: "two", d: "three" };

test("two clients in vain are enough, one is not", () => {
  assert.deepEqual(new Node(FOUR, never).silence(["b"]).left, ["b"]);
  assert.deepEqual(new Node(FOUR, never).silence(["b"], ["3"]).left, []);
});

test("beside one client, an own connection counts if one was answered before", () => {
  let isDead = false;
  const node = new Node(FOUR, () => (isDead ? "silent" : "answered"));
  isDead = true;
  assert.deepEqual(node.silence(["b"], ["3"]).left, ["b"]);
  assert.deepEqual(new Node(FOUR, () => "silent").silence(["b"], ["3"]).left, []);
  assert.deepEqual(new Node(FOUR, () => "refused").silence(["b"], ["3"]).left, []);
});

test("an answer of any client, or to this node, keeps it", () => {
  const node = new Node(FOUR, never);
  const some: Evidence[] = ["0", "1", "2"].map((source) => ({ kind: "unanswered", endpoint: "b", source, count: 9 }));
  for (let i = 0; i < 20; i++) {
    node.look(i % 2 === 0 ? some : [...some, { kind: "answered", endpoint: "b" }]);
    assert.equal(node.left.size, 0);
  }
  assert.deepEqual(new Node(FOUR, () => "answered").silence(["b"]).left, []);
});

test("never the last, and never more than the bounds allow", () => {
  assert.deepEqual(new Node({ b: "one" }, never).silence(["b"]).left, []);
  assert.deepEqual(new Node({ b: "one", c: "one" }, never).silence(["b", "c"]).left, ["b"]);
  const { left, held } = new Node({ a: "own", b: "own", c: "own", d: "own" }, never).silence(["a", "b", "c"]);
  assert.deepEqual(left, ["a", "b"]);
  assert.deepEqual(held, [`${KEY}: at most 2 of 4 endpoints are left out, and more are silent`]);
  const many = Object.fromEntries(Array.from({ length: 12 }, (_, index) => [`e${index}`, "own"]));
  assert.equal(new Node(many, never).silence(Object.keys(many)).left.length, 4);
});

test("silence of one other node is that node's, of more than half this node's", () => {
  assert.deepEqual(new Node({ a: "own", b: "one" }, never).silence(["b"]).left, ["b"]);
  assert.deepEqual(new Node({ a: "own", b: "one", c: "two" }, never).silence(["b"]).left, ["b"]);
  const { left, held } = new Node(FOUR, never).silence(["b", "c"]);
  assert.deepEqual(left, []);
  assert.deepEqual(held, [`${KEY}: so many other nodes are silent that it is this node`]);
  assert.deepEqual(new Node(FOUR, never, { mostSilentNodes: 0.7 }).silence(["b", "c"]).left, ["b", "c"]);
  assert.deepEqual(new Node({ ...FOUR, e: "four" }, never, { mostSilentNodes: 0.3 }).silence(["b", "c"]).left, []);
});

test("what is silent to one client counts where this node itself is doubted", () => {
  const vain = (endpoint: string, source: string): Evidence => ({ kind: "unanswered", endpoint, source, count: 2 });
  const looked = (evidence: readonly Evidence[]) => {
    const node = new Node(FOUR, never);
    const { held = [] } = [1, 2, 3, 4].map(() => node.look(evidence)).at(-1) ?? {};
    return [[...node.left], held];
  };
  const ofOne = [vain("b", "0"), vain("b", "1"), vain("c", "0")];
  assert.deepEqual(looked(ofOne), [[], [`${KEY}: so many other nodes are silent that it is this node`]]);
  assert.deepEqual(looked([...ofOne, { kind: "answered", endpoint: "c" }]), [["b"], []]);
});

test("a change of the slice forgets all", () => {
  const node = new Node(FOUR, never);
  assert.deepEqual(node.silence(["b"]).left, ["b"]);
  node.watch({ ...FOUR, e: "four" });
  const { changes } = node.look([]);
  assert.deepEqual(changes, [
    { kind: "forgotten", key: KEY, endpoint: "b", reason: "its Service or its slices changed" },
  ]);
});

test("it comes back after its time, later after a relapse, and at once if that was wrong", () => {
  const node = new Node(FOUR, never);
  const looksUntilBack = () => {
    let looks = 0;
    for (; node.left.size > 0; looks += 1) node.look([]);
    return looks;
  };
  node.silence(["b"]);
  const first = looksUntilBack();
  node.silence(["b"]);
  const second = looksUntilBack();
  assert.ok(first >= 18 && first <= 20 && second >= 38 && second <= 40, `${first}, then ${second} looks`);

  const wronged = new Node(FOUR, never);
  wronged.silence(["b"]);
  const { changes } = wronged.look([{ kind: "answered", endpoint: "b" }]);
  assert.deepEqual(
    changes.map(({ kind }) => kind),
    ["wrong"],
  );
});
