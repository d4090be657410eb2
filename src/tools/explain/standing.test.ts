/** What a daemon says that it keeps against the objects. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { standingOn, withStanding } from "../../contract/inspect/offline-state.ts";
import { makeEndpoint, makeServicePort } from "../../model/testing/records.ts";
import { decidedLines, refusedServices, standingIn, standingText } from "./standing.ts";

const port = makeServicePort({ nodePort: 30080 });
const { key } = port.name;
const inForce = { port, endpoints: [makeEndpoint("10.1.0.1", 8080), makeEndpoint("10.1.0.2", 8080)] };
const answer = [
  { servicePort: key, family: "IPv4", reason: "no memory", inForce },
  { servicePort: "ns/new/TCP", family: "IPv6", reason: "no memory" },
];

test("what a daemon says is the same after its way as JSON, sets too", () => {
  const read = standingIn(JSON.parse(JSON.stringify(answer)), "other");
  assert.deepEqual(
    read.map(({ servicePort, family, reason }) => [servicePort, family, reason]),
    answer.map(({ servicePort, family, reason }) => [servicePort, family, reason]),
  );
  assert.deepEqual(read[0]?.inForce?.port, port);
  assert.deepEqual(JSON.stringify(read[0]?.inForce?.endpoints), JSON.stringify(inForce.endpoints));
  assert.equal(read[1]?.inForce, undefined);
  const lost = {
    servicePort: key,
    family: "IPv4",
    inForce: { ...inForce, port: { ...port, lostFrontends: ["tcp *:30080"] } },
  };
  const [own] = standingIn([lost], "why");
  assert.deepEqual(own?.inForce?.port.lostFrontends, new Set(["tcp *:30080"]));
  assert.equal(own.reason, "why", "what has no reason of its own has that of who asked");
});

test("answers of other versions are no rules", () => {
  for (const strange of [
    undefined,
    null,
    "text",
    [1, null],
    { error: "no" },
    [{ servicePort: "a/b/TCP", inForce: { port: {} } }],
  ])
    assert.deepEqual(standingIn(strange), []);
});

test("a sentence says what is refused, why, and what stands", () => {
  const [stands, nothing] = standingIn(answer);
  assert.ok(stands && nothing);
  assert.equal(
    standingText(stands),
    `${key} is refused (no memory): its last known good rules stand, from ${port.clusterIP}:${port.port}, *:30080 to 10.1.0.1:8080, 10.1.0.2:8080 (IPv4)`,
  );
  assert.equal(standingText(nothing), "ns/new/TCP is refused (no memory): nothing is in force for it (IPv6)");
  const standing = { node: "node-a", ports: [stands, nothing] };
  const leftOut = {
    node: "node-a",
    ports: new Map([
      [
        key,
        new Map([
          ["10.1.0.2:8080", "since then"],
          ["[fd00::2]:80", "too"],
        ]),
      ],
    ]),
  };
  assert.deepEqual(decidedLines({ standing, leftOut }, "node-a", ["IPv4"]), [
    standingText(stands),
    `10.1.0.2:8080 of ${key} is left out since then`,
  ]);
  assert.deepEqual(decidedLines({ standing, leftOut }, "node-b", ["IPv4", "IPv6"]), [], "another node");
  assert.deepEqual(decidedLines({}, "node-a", ["IPv4"]), []);
});

test("a Service that is defined, but not validly, is refused with the reason", () => {
  const problem = { severity: "error", file: "a", document: 1, line: 1, field: "", message: "is wrong" } as const;
  const refused = refusedServices([
    { ...problem, object: "Service shop/web" },
    { ...problem, object: "EndpointSlice shop/web-1" },
    { ...problem, severity: "warning", object: "Service shop/other" },
  ]);
  assert.deepEqual([...refused], [["shop/web", "is wrong"]]);
});

test("the state of the node has what stands, and not what never was in force", () => {
  const wanted = makeServicePort({ nodePort: 0 });
  const state = {
    services: new Map([
      [key, wanted],
      ["ns/new/TCP", wanted],
    ]),
    endpoints: new Map([["ns/new/TCP", inForce.endpoints]]),
    ...{ endpointCount: 2, localReadyCounts: new Map() },
  };
  const standing = {
    standing: { node: "node-a", ports: standingIn(answer).map((one) => ({ ...one, family: "IPv4" })) },
  };
  const there = withStanding(state, standingOn(standing, "node-a", "IPv4"));
  assert.deepEqual([[...there.services], [...there.endpoints]], [[[key, port]], [[key, inForce.endpoints]]]);
  assert.equal(withStanding(state, standingOn(standing, "node-b", "IPv4")), state);
});
