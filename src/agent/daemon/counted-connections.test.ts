import assert from "node:assert/strict";
import { test } from "node:test";
import { addTo, type CountedPort, type ModeCounters } from "../../contract/traffic.ts";
import { NO_CONNTRACK, type TrackedFlow } from "../../kernel/conntrack/conntrack.ts";
import { silentLogger } from "../../logging/logger.ts";
import { createFamilies } from "../../metrics/metric-families.ts";
import type { Endpoint } from "../../model/endpoint.ts";
import type { ServicePort } from "../../model/service-port.ts";
import { servicePortName } from "../../model/service-port-name.ts";
import { ip } from "../../model/testing/records.ts";
import { FakeClock } from "../sync/testing/fake-clock.ts";
import { defineServiceCounters, ServiceTotals, watchAnswers } from "./counted-connections.ts";

const ADDRESS = ip("10.96.0.1");
const name = (service: string) => servicePortName("shop", service, "http", "TCP");

/** The parts that the test checks. */
const DECLARED = {
  ...{ name: name("a"), protocol: "TCP", clusterIP: ADDRESS, port: 80, nodePort: 0 },
  ...{ externalIPs: [], loadBalancerVIPs: [] },
} as unknown as ServicePort;

function port(service: string, counted: number | null, dropped?: number): CountedPort {
  const count = { open: null, counted, ...(dropped !== undefined && { dropped }) };
  return { name: name(service), family: "IPv4", frontends: [{ address: ADDRESS, port: 80, count }], endpoints: [] };
}

test("the most used Services are named; the rest is what others had while they were not", () => {
  const totals = new ServiceTotals(1);
  assert.deepEqual(
    [...totals.add([port("a", 5), port("b", 3, 2), port("c", null)])],
    [
      ["shop/a", { led: 5, refused: 0, dropped: 0 }],
      ["/", { led: 3, refused: 0, dropped: 2 }],
    ],
  );
  assert.deepEqual(
    [...totals.add([port("a", 6), port("b", 10, 2)])],
    [
      ["shop/b", { led: 10, refused: 0, dropped: 2 }],
      ["/", { led: 4, refused: 0, dropped: 2 }],
    ],
  );
});

test("a rule that is written again counts from zero, and its Service goes on", () => {
  const totals = new ServiceTotals(5);
  const counted = (...ports: readonly CountedPort[]) => totals.add(ports).get("shop/a")?.led;
  assert.equal(counted(port("a", 7)), 7);
  assert.equal(counted(port("a", 2)), 9);
  assert.equal(counted(port("a", 2), port("b", 1)), 9);
  assert.equal(counted(), undefined, "it is gone");
  assert.equal(counted(port("a", 1)), 1, "another of its name");
});

test("what cannot be read for a while is not counted again when it can", () => {
  const totals = new ServiceTotals(5);
  const led = (count: number | null) => totals.add([port("a", count), port("b", 1)]).get("shop/a")?.led;
  assert.deepEqual([500, null, 500, null, 501].map(led), [500, 500, 500, 500, 501]);
});

test("a rule that is written again does not count once more what is decided at the socket", async () => {
  const families = createFamilies();
  let counted = { byRules: 100, atSocket: 1000 };
  const counters: ModeCounters = {
    isEndpointTracked: true,
    async fill(ports, onPart) {
      const counts = ports.flatMap(({ frontends }) => frontends.map(({ count }) => count));
      for (const count of counts) addTo(count, "counted", counted.byRules);
      onPart?.();
      for (const count of counts) addTo(count, "counted", counted.atSocket);
      return [];
    },
  };
  const { key } = name("a");
  const state = { services: new Map([[key, DECLARED]]), endpoints: new Map() };
  defineServiceCounters(families, 5, [{ family: "IPv4", state }], counters);
  const led = async () => Number(/service="a",outcome="led"\} (\d+)$/m.exec(await families.render())?.[1]);
  assert.equal(await led(), 1100);
  counted = { byRules: 3, atSocket: 1001 };
  assert.equal(await led(), 1104);
});

test("what is worked out of two counters may go back a little: that is no beginning at zero", () => {
  const totals = new ServiceTotals(5);
  const dropped = (count: number) => totals.add([port("a", 1, count)]).get("shop/a")?.dropped;
  assert.deepEqual([1000, 998, 1000, 0, 3].map(dropped), [1000, 1000, 1002, 1002, 1005]);
  assert.deepEqual([-5, 0].map(dropped), [1005, 1005]);
});

test("counters that cannot be read cost the other metrics nothing", async () => {
  const families = createFamilies();
  families.gauge({ name: "other", help: "Other" }).set(7);
  let value = -1;
  const samples = async () => {
    if (value === 0) throw new Error("no answer");
    return [{ labels: { who: "a" }, value }];
  };
  families.scrapedSamples({ name: "own", help: "Own", labels: ["who"] }, samples);
  const own = async () => /^own\{.*$/m.exec(await families.render())?.[0];
  assert.match(await families.render(), /^other 7$/m);
  assert.equal(await own(), undefined);
  value = 3;
  assert.equal(await own(), 'own{who="a"} 3');
  value = 0;
  assert.equal(await own(), undefined);
});

const ENDPOINTS = ["10.180.0.1", "10.180.0.2"].map((address) => ({
  ip: ip(address),
  port: 8080,
  text: `${address}:8080`,
}));

test("an endpoint that never answers is told of once, until it answers or is gone", async () => {
  const key = name("a").key;
  const endpoints = new Map([[key, ENDPOINTS as unknown as readonly Endpoint[]]]);
  let tracked: readonly (readonly [string, boolean])[] = [];
  const conntrack = {
    ...NO_CONNTRACK,
    async readFlows(_family: unknown, _filter: unknown, begin: () => (flow: TrackedFlow) => void) {
      const visit = begin();
      const client = ip("10.180.0.9");
      for (const [address, isAnswered] of tracked) {
        visit({
          ...{ protocol: "TCP", sourceIP: client, sourcePort: 4000, destinationIP: ADDRESS, destinationPort: 80 },
          ...{
            replySourceIP: ip(address),
            replySourcePort: 8080,
            replyDestinationIP: client,
            replyDestinationPort: 4000,
          },
          isAnswered,
        });
      }
      return true;
    },
  };
  const told: string[] = [];
  const counts: number[] = [];
  const clock = new FakeClock();
  const stop = new AbortController();
  const watching = watchAnswers(
    [{ family: "IPv4", state: { services: new Map([[key, DECLARED]]), endpoints } }],
    {
      ...{ periodMs: 1000, conntrack, counters: { isEndpointTracked: true }, clock, log: silentLogger },
      tell: (to, text) => void told.push(`${to}: ${text}`),
      setCount: (count) => void counts.push(count),
    },
    stop.signal,
  );
  const round = async (...flows: typeof tracked) => {
    tracked = flows;
    await clock.advance(1000);
    return [told.splice(0), counts.at(-1)];
  };
  const other = ["10.180.0.1", true] as const;
  const silent = Array.from({ length: 3 }, () => ["10.180.0.2", false] as const);
  const text =
    "shop/a: 10.180.0.2:8080 has answered none of its 3 connections of shop/a:http from here, while others are answered.";
  assert.deepEqual(await round(other), [[], 0]);
  assert.deepEqual(await round(other, ...silent), [[text], 1]);
  assert.deepEqual(await round(other, ...silent), [[], 1], "it is known");
  assert.deepEqual(await round(), [[], 1], "nobody has asked it since");
  assert.deepEqual(await round(other, ["10.180.0.2", true]), [[], 0], "it answers");
  assert.deepEqual(await round(other, ...silent), [[text], 1], "again");
  endpoints.set(key, ENDPOINTS.slice(0, 1) as unknown as readonly Endpoint[]);
  assert.deepEqual(await round(other, ...silent), [[], 0], "it is gone");
  stop.abort();
  await watching;
  assert.equal(clock.timerCount, 0);
});
