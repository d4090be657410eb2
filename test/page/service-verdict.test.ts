/** The sentence with which the page's view of a Service begins. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Encounter, ExplainedFrontend } from "../../src/explain/explanation.ts";

/** The module is for browsers, whose types are not known here. */
const MODULE = new URL("../../src/page/client/service-view.ts", import.meta.url).href;

const client = (position: string, outcome: string, reason = "policy") => ({ position, outcome, reason, words: reason });

const family = (...frontends: { kind: string; clients: object[]; owner?: string }[]) => ({
  causes: ["The service port has no endpoints: its clients are refused."],
  frontends: frontends.map(({ owner = null, ...one }) => ({ ...one, owner }) as unknown as ExplainedFrontend),
});

test("a Service's verdict counts who may ask where, and never calls lost answers well", async () => {
  const { verdictOf } = (await import(MODULE)) as {
    verdictOf(families: readonly object[]): { readonly kind: string; readonly text: string };
  };
  const here = [client("pod", "answered"), client("node", "answered")];
  const all = (outcome: Encounter["outcome"]) => ["pod", "node", "outside"].map((one) => client(one, outcome));
  const good = "Every client gets an answer.";
  assert.deepEqual(verdictOf([family({ kind: "cluster-ip", clients: here })]), { kind: "good", text: good });
  // Clients outside the cluster do not use a cluster IP: no fault, but they are not counted as answered.
  for (const away of [client("outside", "dropped"), client("outside", "answered", "answers-lost")]) {
    assert.deepEqual(verdictOf([family({ kind: "cluster-ip", clients: [...here, away] })]), {
      kind: "good",
      text: `${good} At the cluster IP that is so for pods and this node; clients outside may get none.`,
    });
  }
  const none = verdictOf([family({ kind: "cluster-ip", clients: all("refused") })]);
  assert.deepEqual(none, {
    kind: "bad",
    text: "No client gets an answer. The service port has no endpoints: its clients are refused.",
  });
  const lost = client("outside", "answered", "answers-lost");
  assert.deepEqual(verdictOf([family({ kind: "node-port", clients: [...here, lost] })]), {
    kind: "warn",
    text: "Answered, but at its node port these may get no answer: clients outside (answers-lost).",
  });
  const refused = verdictOf([
    family({ kind: "cluster-ip", clients: here }, { kind: "load-balancer", clients: all("dropped") }),
  ]);
  assert.match(
    refused.text,
    /^Answered, but at its load balancer these get no answer: a pod here, this node, clients outside/,
  );
  // What belongs to another Service is not asked of this one.
  const others = family({ kind: "cluster-ip", clients: here }, { kind: "external-ip", clients: [], owner: "a/b:c" });
  assert.equal(verdictOf([others]).kind, "good");
});
