/** Connections of a real process while its endpoints change and programs are replaced, as fast as this process can. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { port } from "../../../testkit/dataplane/test-cluster.ts";
import { PATIENCE } from "../../../testkit/support/patience.ts";
import { kernelBpf } from "../../kernel/bpf/kernel-bpf.ts";
import { reasonToSkip, testCgroup } from "../../kernel/bpf/testing/test-cgroup.ts";
import { makeEndpoint } from "../../model/testing/records.ts";
import { REST_MS } from "./socket-balancer/free-list.ts";
import { startDialler } from "./socket-balancer/testing/dialler.ts";
import { leadNamespaces } from "./socket-balancer/testing/dialling.ts";
import { SocketMaps } from "./socket-maps.ts";
import { SocketPrograms } from "./socket-programs.ts";

const VIP = "10.96.0.1";
const CONNECTIONS = 800;
/** There are no rules here, so a connection that reads a list in the middle of a change goes nowhere. */
const MOST_PASSED = 15;

test("connections meet an endpoint of their own service, while all endpoints change", {
  skip: reasonToSkip(),
  timeout: 60_000 * PATIENCE,
}, async (t) => {
  const bpf = kernelBpf();
  const cgroup = testCgroup(t);
  const dialler = await startDialler(t, cgroup);
  const listening = { 80: [0, 0], 81: [0, 0] };
  for (const ports of Object.values(listening)) {
    for (const at of ports.keys()) ports[at] = await dialler.listen("tcp", "127.0.0.1");
  }
  // The clock makes freed backends reusable at once, by either service.
  let nowMs = 0;
  const programs = new SocketPrograms(bpf, "IPv4", { hostCookie: 1n });
  const maps = new SocketMaps(
    { bpf, family: "IPv4", onMoved: (open) => programs.load(open), nowMs: () => (nowMs += REST_MS) },
    { services: 2, endpoints: 4 },
  );
  maps.renew({ until: 2n ** 63n });
  leadNamespaces(maps.memory, await dialler.netnsCookie());
  t.after(() => {
    programs.close();
    maps.close();
  });
  const services = [80, 81].map((number) => port(`s${number}`, VIP, { port: number }));
  const facts = { nodeName: "node-a", zone: undefined };
  const change = (round: number): void => {
    for (const service of services) {
      const [one = 0, other = 0] = listening[service.port as 80 | 81];
      const lists = [[one], [one, other], [other], [other, one]];
      const endpoints = (lists[round % lists.length] ?? []).map((at) => makeEndpoint("127.0.0.1", at));
      maps.set(service.name.key, service, endpoints, facts);
    }
  };
  change(0);
  maps.settle();
  programs.load(maps.open);
  programs.attach(cgroup);
  let rounds = 0;
  const dialWhileChanging = async () => {
    let isOver = false;
    const dialling = dialler.dialInTurn(VIP, [80, 81], CONNECTIONS).finally(() => {
      isOver = true;
    });
    while (!isOver) {
      change(++rounds);
      if (rounds % 50 === 0) programs.load(maps.open);
      await turn();
    }
    return await dialling;
  };
  let outcomes = await dialWhileChanging();
  // On a busy machine, the other process may finish before this one gets its turns.
  for (let attempt = 0; rounds <= 100 && attempt < 20; attempt += 1) {
    rounds = 0;
    outcomes = await dialWhileChanging();
  }
  assert.ok(rounds > 100, "it has changed all the time");
  for (const [number, met] of Object.entries(outcomes)) {
    const { ENETUNREACH: passed = 0, ...reached } = met;
    const own = listening[Number(number) as 80 | 81].map(String);
    assert.deepEqual(Object.keys(reached).sort(), own.toSorted(), "all of its own, and no other");
    assert.ok(passed <= MOST_PASSED, `${passed} had no way`);
  }
  t.diagnostic(`${rounds} changes of each service during ${CONNECTIONS} connections: ${JSON.stringify(outcomes)}`);
});
