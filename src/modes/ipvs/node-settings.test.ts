import assert from "node:assert/strict";
import { test } from "node:test";
import { MemoryIpvs } from "../../../testkit/fakes/ipvs/memory-ipvs.ts";
import { memorySysctls } from "../../../testkit/fakes/sysctl-memory.ts";
import { silentLogger } from "../../logging/logger.ts";
import { setSysctls, setTimeouts } from "./node-settings.ts";

const VS = "net/ipv4/vs";

function parameters() {
  return memorySysctls({
    [`${VS}/conntrack`]: 0,
    [`${VS}/conn_reuse_mode`]: 1,
    [`${VS}/expire_nodest_conn`]: 0,
    [`${VS}/expire_quiescent_template`]: 0,
    "net/ipv4/ip_forward": 0,
    "net/ipv4/conf/all/arp_ignore": 0,
    "net/ipv4/conf/all/arp_announce": 0,
  });
}

const USUAL = [
  `${VS}/conntrack=1`,
  `${VS}/expire_nodest_conn=1`,
  `${VS}/expire_quiescent_template=1`,
  "net/ipv4/ip_forward=1",
];
const [CONNTRACK = "", ...OTHERS] = USUAL;

for (const [version, strictARP, writes] of [
  [{ major: 6, minor: 1 }, false, USUAL],
  [{ major: 5, minor: 9 }, false, USUAL],
  [{ major: 5, minor: 8 }, false, [CONNTRACK, `${VS}/conn_reuse_mode=0`, ...OTHERS]],
  [{ major: 4, minor: 1 }, false, [CONNTRACK, `${VS}/conn_reuse_mode=0`, ...OTHERS]],
  [undefined, false, USUAL],
  [{ major: 6, minor: 1 }, true, [...USUAL, "net/ipv4/conf/all/arp_ignore=1", "net/ipv4/conf/all/arp_announce=2"]],
] as const) {
  test(`sysctls on kernel ${version?.major}.${version?.minor}, strictARP ${strictARP}`, async () => {
    const sysctls = parameters();
    await setSysctls(sysctls, { strictARP, kernelVersion: version }, silentLogger);
    assert.deepEqual(sysctls.writes, writes);
    await setSysctls(sysctls, { strictARP, kernelVersion: version }, silentLogger);
    assert.equal(sysctls.writes.length, writes.length, "what is right is not written again");
  });
}

test("a kernel before 4.1 is said to be too old for one of them, and gets the others", async () => {
  const sysctls = parameters();
  const errors: string[] = [];
  const log = { ...silentLogger, error: (message: string, error: unknown) => void errors.push(`${message}: ${error}`) };
  await setSysctls(sysctls, { strictARP: false, kernelVersion: { major: 3, minor: 10 } }, log);
  assert.deepEqual(errors, [
    "Can't set sysctl net/ipv4/vs/conn_reuse_mode: Error: it needs kernel 4.1 or later, this is 3.10",
  ]);
  assert.deepEqual(sysctls.writes, USUAL);
});

test("a parameter that cannot be set is named", async () => {
  const sysctls = parameters();
  sysctls.readOnly.add("net/ipv4/ip_forward");
  await assert.rejects(
    setSysctls(sysctls, { strictARP: false, kernelVersion: undefined }, silentLogger),
    /^Error: can't set sysctl net\/ipv4\/ip_forward to 1: .*read-only/,
  );
  await assert.rejects(
    setSysctls(memorySysctls({}), { strictARP: false, kernelVersion: undefined }, silentLogger),
    /^Error: can't set sysctl net\/ipv4\/vs\/conntrack to 1: /,
  );
});

test("timeouts that are given are set, once, and others kept", async () => {
  const ipvs = new MemoryIpvs();
  const { tcp } = await ipvs.timeouts();
  await setTimeouts(ipvs, { tcp: 0, tcpFin: 30, udp: 10 }, silentLogger);
  assert.deepEqual(await ipvs.timeouts(), { tcp, tcpFin: 30, udp: 10 });
  const before = ipvs.messages;
  await setTimeouts(ipvs, { tcp: 0, tcpFin: 30, udp: 10 }, silentLogger);
  assert.equal(ipvs.messages - before, 1, "only asked");
});

test("timeouts that cannot be set stop nothing", async () => {
  const ipvs = new MemoryIpvs();
  ipvs.unload();
  const errors: string[] = [];
  await setTimeouts(
    ipvs,
    { tcp: 1, tcpFin: 1, udp: 1 },
    {
      ...silentLogger,
      error: (message) => void errors.push(message),
    },
  );
  assert.deepEqual(errors, ["Failed to configure the timeouts of IPVS"]);
});
