/** Node ports at 127.0.0.1 and ::1: the host is redirected to an endpoint if so configured, pods never (KEP-6032). */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { PATIENCE } from "../../../../testkit/support/patience.ts";
import { kernelBpf } from "../../../kernel/bpf/kernel-bpf.ts";
import { reasonToSkip, testCgroup } from "../../../kernel/bpf/testing/test-cgroup.ts";
import type { IpAddress, IpFamily } from "../../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../../net/protocol.ts";
import { socketPrograms } from "./programs.ts";
import { startDialler } from "./testing/dialler.ts";
import { type Frontend, fillMaps, openMaps, testMaps } from "./testing/dialling.ts";

const { TCP, UDP } = PROTOCOL_NUMBERS;
const [SERVED, LOCAL_POLICY, EMPTY] = [30_080, 30_081, 30_082];

/** Two network namespaces, one of them the host's, with programs for both. */
async function scene(t: TestContext, family: IpFamily, leadsLocalhost = true) {
  const localhost = (family === "IPv4" ? "127.0.0.1" : "::1") as IpAddress;
  const bpf = kernelBpf();
  const cgroup = testCgroup(t);
  const [host, pod] = [await startDialler(t, cgroup), await startDialler(t, cgroup)];
  const [endpoint, udp] = [await host.listen("tcp", localhost), await host.listen("udp", localhost)];
  const own = await pod.listen("tcp", localhost);
  const nodePort = (port: number, at: number | undefined, protocol: number = TCP, isHostOnly = false): Frontend => ({
    ...{ address: undefined, port, protocol, isHostOnly },
    endpoints: at === undefined ? [] : [{ address: localhost, port: at }],
  });
  const definitions = testMaps(family);
  const maps = openMaps(bpf, definitions);
  const frontends = [
    nodePort(SERVED, endpoint),
    nodePort(LOCAL_POLICY, endpoint, TCP, true),
    nodePort(EMPTY, undefined),
    nodePort(SERVED, udp, UDP),
    nodePort(own, endpoint),
  ];
  fillMaps(maps, frontends, family);
  const opened: { close(): void }[] = Object.values(maps);
  t.after(() => opened.toReversed().map((one) => one.close()));
  const options = { hostCookie: await host.netnsCookie(), leadsLocalhost };
  for (const [hook, program] of socketPrograms(family, definitions, options)) {
    const loaded = bpf.loadProgram(program, hook, Object.values(maps));
    opened.push(loaded, bpf.attach(loaded, hook, cgroup));
  }
  return { host, pod, localhost, endpoint, own };
}

const REFUSED = { code: "ECONNREFUSED" };

for (const family of ["IPv4", "IPv6"] as const) {
  const skip = reasonToSkip();
  const timeout = 60_000 * PATIENCE;

  test(`${family}: the host is led, and what cannot be exact meets what listens there`, {
    skip,
    timeout,
  }, async (t) => {
    const { host, localhost, endpoint } = await scene(t, family);
    const to = (port: number, address: string = localhost) => ({ address, port });
    assert.deepEqual(await host.dial("tcp", to(SERVED)), { reached: endpoint, peer: `${localhost} ${SERVED}` });
    assert.deepEqual(await host.dial("tcp", to(LOCAL_POLICY)), REFUSED, "upstream's relay obeys the Local policy");
    assert.deepEqual(await host.dial("tcp", to(EMPTY)), REFUSED);
    assert.deepEqual(await host.dial("tcp", to(SERVED), localhost), REFUSED, "a source from which no pod is reached");
    assert.deepEqual(await host.dial("udp", to(SERVED)), REFUSED);
    if (family === "IPv6") return;
    const mapped = { reached: endpoint, peer: `::ffff:127.0.0.1 ${SERVED}` };
    assert.deepEqual(await host.dial("tcp", to(SERVED, "::ffff:127.0.0.1")), mapped);
    assert.deepEqual(await host.dial("tcp", to(SERVED, "::ffff:127.0.0.1"), "::ffff:127.0.0.1"), REFUSED);
    assert.deepEqual(await host.dial("tcp", to(SERVED, "127.0.0.2")), REFUSED, "nothing listens there in other modes");
  });

  test(`${family}: a pod's loopback is its own`, { skip, timeout }, async (t) => {
    const { host, pod, localhost, endpoint, own } = await scene(t, family);
    assert.deepEqual(await pod.dial("tcp", { address: localhost, port: SERVED }), REFUSED);
    const met = await pod.dial("tcp", { address: localhost, port: own });
    assert.deepEqual(met, { reached: own, peer: `${localhost} ${own}` });
    assert.equal((await host.dial("tcp", { address: localhost, port: own })).reached, endpoint);
  });

  test(`${family}: nothing is led that is not asked for`, { skip, timeout }, async (t) => {
    const { host, localhost } = await scene(t, family, false);
    assert.deepEqual(await host.dial("tcp", { address: localhost, port: SERVED }), REFUSED);
  });
}
