/** The sentence with which the page's view of a Service begins, its pictures, and that of a packet's way. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Encounter, ExplainedFrontend } from "../../src/tools/explain/explanation.ts";

/** The module is for browsers, whose types are not known here. */
const MODULE = new URL("../../src/tools/page/client/service-view.ts", import.meta.url).href;

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

test("a packet's picture: the client, whose address it asks, and each end with the rule that decides", async () => {
  const { wayOf } = (await import(new URL("trace-view.ts", MODULE).href)) as {
    wayOf(answer: object, from: string): Drawn;
  };
  const match = (text: string, said: string) => ({ kind: "match", text, said });
  const sent = "sent to 10.180.0.11:8080, from 10.180.0.9 (kept)";
  const refused = "refused (icmp port-unreachable) by ip kube-proxy reject-chain rule 1: reject";
  const end = (fate: string, ...steps: object[]) => ({
    steps,
    fate,
    isGood: fate === sent,
    question: null,
    branches: [],
  });
  const ways = [
    end(sent, match("KUBE-SEP 2: -j DNAT", "dnat to 10.180.0.11:8080"), match("POST 1: -j RETURN", "return")),
    end(refused, match("reject-chain 1: reject", "reject")),
  ];
  const { boxes, arrows } = wayOf(
    {
      ...{ packet: "tcp", source: "10.180.0.9", destination: "10.96.0.10:80", owner: "an address of shop/web:http" },
      outcomes: [
        { text: sent, odds: "50.0 %", assumptions: [] },
        { text: refused, odds: "50.0 %", assumptions: ["it leaves by eth0"] },
      ],
      steps: {
        ...{
          steps: [match("KUBE-SERVICES 3: -j KUBE-SVC", "jump KUBE-SVC")],
          fate: null,
          isGood: true,
          question: "chance",
        },
        branches: ways.map((way) => ({ odds: "50.0 %", label: "", way })),
      },
    },
    "shop/client",
  );
  assert.deepEqual(
    boxes.map(({ title, note, isUsed }) => [title, note, isUsed]),
    [
      ["10.180.0.9", "shop/client", true],
      ["10.96.0.10:80", "an address of shop/web:http", true],
      ["sent to 10.180.0.11:8080", "KUBE-SEP 2", true],
      ["refused (icmp port-unreachable)", "if it leaves by eth0: reject-chain 1", false],
    ],
  );
  assert.deepEqual(
    arrows.map(({ from, to, label }) => `${from.title} > ${to.title} ${label}`),
    [
      "10.180.0.9 > 10.96.0.10:80 ",
      "10.96.0.10:80 > sent to 10.180.0.11:8080 50.0 %",
      "10.96.0.10:80 > refused (icmp port-unreachable) 50.0 %",
    ],
  );
});

/** An endpoint's use by a policy. */
const use = (used: boolean, share: number) => ({ used, share, why: used ? "ready" : "not local" });

function pictured(count: number) {
  const endpoints = Array.from({ length: count }, (_, index) => ({
    ...{ address: `10.180.0.${index}:8080`, pod: null, node: index < 2 ? "node-a" : "node-b", state: "ready" },
    ...{ cluster: use(true, 1 / count), local: use(index < 2, index < 2 ? 0.5 : 0) },
  }));
  const clients = [
    { position: "pod", outcome: "answered", endpoints: "all" },
    { position: "outside", outcome: "answered", endpoints: "local" },
  ];
  const frontends = [{ kind: "node-port", address: null, port: 30080, fate: "serve", clients, open: 3, counted: null }];
  return {
    servicePort: "shop/web:http",
    protocol: "TCP",
    node: "node-a",
    mode: "nftables",
    family: "IPv4",
    endpoints,
    frontends,
  };
}

interface Drawn {
  readonly boxes: readonly { readonly title: string; readonly note: string; readonly isUsed: boolean }[];
  readonly arrows: readonly {
    readonly from: { title: string };
    readonly to: { title: string };
    readonly label: string;
  }[];
}

test("a Service's picture: frontends, policies, and endpoints by their shares; beyond twenty, nodes by theirs", async () => {
  const { servicePicture } = (await import(new URL("service-picture.ts", MODULE).href)) as {
    servicePicture(explained: object): Drawn;
  };
  const few = servicePicture(pictured(3));
  assert.deepEqual(
    few.boxes.map(({ title, note }) => `${title}: ${note}`),
    [
      "node port 30080: 3 open",
      "Cluster policy: 3 of 3 endpoints",
      "Local policy: 2 of 3 endpoints",
      "10.180.0.0:8080: node-a, ready",
      "10.180.0.1:8080: node-a, ready",
      "10.180.0.2:8080: node-b, ready",
    ],
  );
  const arrows = ({ arrows: all }: Drawn) => all.map(({ from, to, label }) => `${from.title} > ${to.title} ${label}`);
  assert.deepEqual(arrows(few).slice(0, 4), [
    "node port 30080 > Cluster policy pod",
    "node port 30080 > Local policy outside",
    ...["Cluster policy > 10.180.0.0:8080 33.3 %", "Local policy > 10.180.0.0:8080 50 %"],
  ]);
  const many = servicePicture(pictured(40));
  assert.deepEqual(
    many.boxes.slice(3).map(({ title, note }) => `${title}: ${note}`),
    ["node-b: 38 endpoints, all used", "node-a: 2 endpoints, all used"],
  );
  // No client of the Local policy reaches another node.
  assert.deepEqual(arrows(many).slice(2), [
    "Cluster policy > node-b 95 %",
    ...["Cluster policy > node-a 5 %", "Local policy > node-a 100 %"],
  ]);
});

test("measured shares: by what all endpoints have counted, beside the plan of each policy, with what chance explains", async () => {
  const { measuredShares } = (await import(new URL("traffic-charts.ts", MODULE).href)) as {
    measuredShares(
      groups: readonly object[],
      counting: object,
    ):
      | {
          readonly what: string;
          readonly total: number;
          readonly rows: readonly {
            readonly measured: number;
            readonly planned: readonly number[];
            readonly range?: readonly [number, number];
            readonly off: number;
          }[];
        }
      | undefined;
  };
  const random = { policies: { sessionAffinity: "None" } };
  const endpoint = (share: number, open: number | null, counted: number | null, local: object | null = null) => ({
    own: [{ cluster: use(true, share), local, open, counted }],
  });
  const drawn = measuredShares([endpoint(0.5, 9, 40), endpoint(0.5, 1, 60)], random);
  assert.deepEqual([drawn?.what, drawn?.total], ["counted", 100]);
  assert.deepEqual(
    drawn?.rows.map(({ measured, planned, off }) => [measured, planned, off.toFixed(2)]),
    [
      [0.4, [0.5], "0.10"],
      [0.6, [0.5], "0.10"],
    ],
  );
  assert.deepEqual(
    drawn?.rows[0]?.range?.map((one) => one.toFixed(3)),
    ["0.402", "0.598"],
  );
  // Counters that not all endpoints have compare nothing; open connections do, if all are known.
  assert.equal(measuredShares([endpoint(0.5, 9, null), endpoint(0.5, 1, 60)], random)?.what, "open");
  assert.equal(measuredShares([endpoint(0.5, 9, null), endpoint(0.5, null, null)], random), undefined);
  // Which clients ask under which policy is not known, and an affinity follows clients: no range is claimed.
  const both = measuredShares([endpoint(0.5, 9, null, use(true, 1)), endpoint(0.5, 1, null, use(false, 0))], random);
  assert.deepEqual(
    both?.rows.map(({ planned, range }) => [planned, range]),
    [
      [[0.5, 1], undefined],
      [[0.5, 0], undefined],
    ],
  );
  for (const counting of [
    { policies: { sessionAffinity: "ClientIP" } },
    { ...random, balancing: { hash: "SourceHash" } },
  ]) {
    assert.equal(measuredShares([endpoint(1, 9, null)], counting)?.rows[0]?.range, undefined);
  }
});

test("connection tracking's picture ends at the state, which is newer than the overview while nothing is synced", async () => {
  const { trackedUntilNow } = (await import(new URL("front-view.ts", MODULE).href)) as {
    trackedUntilNow(front: object, known: object): readonly (readonly number[])[];
  };
  const known = (nowMs: number, entries?: number) => ({
    answer: { nowMs, status: entries === undefined ? {} : { connectionTracking: { entries } } },
  });
  const tracked = [
    [1, 10],
    [2, 20],
  ];
  assert.deepEqual(trackedUntilNow({ tracked }, known(3, 30)), [...tracked, [3, 30]]);
  for (const same of [known(2, 30), known(3)]) assert.deepEqual(trackedUntilNow({ tracked }, same), tracked);
  // One point is no picture, and is not made one.
  assert.deepEqual(trackedUntilNow({ tracked: [[1, 10]] }, known(3, 30)), [[1, 10]]);
});
