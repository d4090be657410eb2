/** The contract of {@link Ipvs}, for the kernel's (in the test's own namespace) and the one in memory. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import type { IpAddress } from "../../../../net/ip.ts";
import {
  IPVS_SERVICE_PERSISTENT,
  IPVS_SERVICE_SCHEDULER_FLAG_1,
  IPVS_SERVICE_SCHEDULER_FLAG_2,
  type Ipvs,
  type IpvsOperation,
  type RealServer,
  type RealServerKey,
  type VirtualServer,
  type VirtualServerKey,
  virtualServerText,
} from "../ipvs.ts";

/** A namespace without virtual servers. */
export interface IpvsRig {
  readonly ipvs: Ipvs;
  /**
   * Opens a client's TCP connection to the virtual server, which leads to the real server.
   * @returns a function that closes it.
   */
  readonly connect: (virtualServer: VirtualServerKey, realServer: RealServerKey) => Promise<() => Promise<void>>;
}

export interface IpvsSubject {
  readonly name: string;
  readonly open: (t: TestContext) => Promise<IpvsRig>;
  /** Why it cannot be tested here; `false` if it can. */
  readonly skip: string | false;
}

const ip = (text: string): IpAddress => text as IpAddress; // canonical literals below

const SERVER: VirtualServer = {
  address: ip("10.96.0.1"),
  protocol: "TCP",
  port: 80,
  scheduler: "rr",
  flags: 0,
  timeoutSeconds: 0,
};
const SERVER_6: VirtualServer = { ...SERVER, address: ip("fd00:10:96::1") };
const GONE: VirtualServer = { ...SERVER, port: 81 };
const real = (n: number, weight = 1): RealServer => ({ address: ip(`10.180.0.${n}`), port: 8080, weight });
const real6 = (n: number, weight = 1): RealServer => ({ address: ip(`fd00:10:180::${n}`), port: 8080, weight });

/** Virtual servers of all kinds. */
const VARIETY: readonly VirtualServer[] = [
  SERVER,
  { ...SERVER, protocol: "UDP", scheduler: "wrr" },
  { ...SERVER, protocol: "SCTP", scheduler: "lc" },
  { ...SERVER, port: 65535, scheduler: "wlc", flags: IPVS_SERVICE_PERSISTENT, timeoutSeconds: 10800 },
  { ...SERVER, port: 1, scheduler: "mh", flags: IPVS_SERVICE_SCHEDULER_FLAG_2 },
  {
    ...SERVER,
    port: 443,
    scheduler: "sh",
    flags: IPVS_SERVICE_PERSISTENT | IPVS_SERVICE_SCHEDULER_FLAG_1 | IPVS_SERVICE_SCHEDULER_FLAG_2,
    timeoutSeconds: 1,
  },
  SERVER_6,
  { ...SERVER_6, protocol: "UDP", port: 53, scheduler: "sed", flags: IPVS_SERVICE_PERSISTENT, timeoutSeconds: 86400 },
];

const addVirtual = (...servers: readonly VirtualServer[]): IpvsOperation[] =>
  servers.map((virtualServer) => ({ kind: "add-virtual-server", virtualServer }));
const addReal = (virtualServer: VirtualServerKey, ...servers: readonly RealServer[]): IpvsOperation[] =>
  servers.map((realServer) => ({ kind: "add-real-server", virtualServer, realServer }));
const updateReal = (virtualServer: VirtualServerKey, realServer: RealServer): IpvsOperation => ({
  kind: "update-real-server",
  virtualServer,
  realServer,
});
const deleteReal = (virtualServer: VirtualServerKey, realServer: RealServerKey): IpvsOperation => ({
  kind: "delete-real-server",
  virtualServer,
  realServer,
});

async function list(ipvs: Ipvs): Promise<VirtualServer[]> {
  const all = [...(await ipvs.virtualServers("IPv4")), ...(await ipvs.virtualServers("IPv6"))];
  return sorted(all);
}

function sorted(servers: readonly VirtualServer[]): VirtualServer[] {
  return [...servers].sort((a, b) => (virtualServerText(a) < virtualServerText(b) ? -1 : 1));
}

const weights = async (ipvs: Ipvs, key: VirtualServerKey): Promise<[string, number][] | undefined> =>
  (await ipvs.realServers(key))?.map(({ address, weight }) => [address, weight]);

export function ipvsContract({ name, open, skip }: IpvsSubject): void {
  describe(`IPVS: ${name}`, { skip }, () => {
    describe("virtual servers", () => virtualServerTests(open));
    describe("real servers", () => realServerTests(open));
    describe("refusals", () => refusalTests(open));
  });
}

type Open = IpvsSubject["open"];

function virtualServerTests(open: Open): void {
  test("there are none at first", async (t) => {
    const { ipvs } = await open(t);
    assert.deepEqual(await list(ipvs), []);
    assert.equal(await ipvs.virtualServer(SERVER), undefined);
    assert.equal(await ipvs.realServers(SERVER), undefined);
    assert.equal(await ipvs.connections(SERVER), undefined);
  });

  test("of every kind are added, and found again as they were given", async (t) => {
    const { ipvs } = await open(t);
    assert.deepEqual(await ipvs.apply(addVirtual(...VARIETY)), []);
    assert.deepEqual(await list(ipvs), sorted(VARIETY));
    for (const server of VARIETY) assert.deepEqual(await ipvs.virtualServer(server), server);
  });

  test("are listed by family", async (t) => {
    const { ipvs } = await open(t);
    await ipvs.apply(addVirtual(SERVER, SERVER_6));
    assert.deepEqual(await ipvs.virtualServers("IPv4"), [SERVER]);
    assert.deepEqual(await ipvs.virtualServers("IPv6"), [SERVER_6]);
  });

  test("are updated in place: scheduler, flags and timeout, with their real servers kept", async (t) => {
    const { ipvs } = await open(t);
    await ipvs.apply([...addVirtual(SERVER), ...addReal(SERVER, real(1))]);
    const changed = { ...SERVER, scheduler: "wrr", flags: IPVS_SERVICE_PERSISTENT, timeoutSeconds: 30 };
    for (const virtualServer of [changed, SERVER]) {
      assert.deepEqual(await ipvs.apply([{ kind: "update-virtual-server", virtualServer }]), []);
      assert.deepEqual(await ipvs.virtualServer(SERVER), virtualServer);
    }
    assert.deepEqual(await weights(ipvs, SERVER), [["10.180.0.1", 1]]);
  });

  test("are deleted with their real servers, and nothing of these comes back", async (t) => {
    const { ipvs } = await open(t);
    await ipvs.apply([...addVirtual(SERVER, SERVER_6), ...addReal(SERVER, real(1), real(2))]);
    assert.deepEqual(await ipvs.apply([{ kind: "delete-virtual-server", virtualServer: SERVER }]), []);
    assert.deepEqual(await list(ipvs), [SERVER_6]);
    assert.equal(await ipvs.realServers(SERVER), undefined);
    await ipvs.apply(addVirtual(SERVER));
    assert.deepEqual(await ipvs.realServers(SERVER), []);
  });

  test("are all removed by a flush", async (t) => {
    const { ipvs } = await open(t);
    await ipvs.apply([...addVirtual(...VARIETY), ...addReal(SERVER, real(1))]);
    await ipvs.flush();
    assert.deepEqual(await list(ipvs), []);
  });

  test("thousands, more than fit one message and one datagram", async (t) => {
    const { ipvs } = await open(t);
    const servers = Array.from({ length: 3000 }, (_, n) => ({ ...SERVER, address: ip(`10.96.${n >> 8}.${n & 255}`) }));
    const operations = servers.flatMap((server) => [...addVirtual(server), ...addReal(server, real(1))]);
    assert.deepEqual(await ipvs.apply(operations), []);
    assert.deepEqual(await list(ipvs), sorted(servers));
    await ipvs.flush();
  });

  test("timeouts are set, and 0 keeps what there is", async (t) => {
    const { ipvs } = await open(t);
    await ipvs.setTimeouts({ tcp: 1000, tcpFin: 50, udp: 60 });
    await ipvs.setTimeouts({ tcp: 0, tcpFin: 0, udp: 70 });
    assert.deepEqual(await ipvs.timeouts(), { tcp: 1000, tcpFin: 50, udp: 70 });
  });

  test("an aborted signal stops it", async (t) => {
    const { ipvs } = await open(t);
    const signal = AbortSignal.abort(new Error("stop"));
    await assert.rejects(ipvs.virtualServers("IPv4", signal), /stop/);
    await assert.rejects(ipvs.realServers(SERVER, signal), /stop/);
    await assert.rejects(ipvs.apply(addVirtual(SERVER), signal), /stop/);
    assert.deepEqual(await list(ipvs), []);
  });
}

function realServerTests(open: Open): void {
  test("are listed newest first, with weights and no connections", async (t) => {
    const { ipvs } = await open(t);
    await ipvs.apply([...addVirtual(SERVER), ...addReal(SERVER, real(1), real(2, 0), real(3, 100))]);
    const idle = { activeConnections: 0, inactiveConnections: 0, connections: 0 };
    assert.deepEqual(await ipvs.realServers(SERVER), [
      { ...real(3, 100), ...idle },
      { ...real(2, 0), ...idle },
      { ...real(1), ...idle },
    ]);
  });

  test("of IPv6", async (t) => {
    const { ipvs } = await open(t);
    await ipvs.apply([...addVirtual(SERVER_6), ...addReal(SERVER_6, real6(1), real6(2))]);
    assert.deepEqual(await weights(ipvs, SERVER_6), [
      ["fd00:10:180::2", 1],
      ["fd00:10:180::1", 1],
    ]);
  });

  test("change their weight in place, and are deleted", async (t) => {
    const { ipvs } = await open(t);
    await ipvs.apply([...addVirtual(SERVER), ...addReal(SERVER, real(1), real(2))]);
    assert.deepEqual(await ipvs.apply([updateReal(SERVER, real(2, 0))]), []);
    assert.deepEqual(await weights(ipvs, SERVER), [
      ["10.180.0.2", 0],
      ["10.180.0.1", 1],
    ]);
    assert.deepEqual(await ipvs.apply([deleteReal(SERVER, real(1))]), []);
    assert.deepEqual(await weights(ipvs, SERVER), [["10.180.0.2", 0]]);
  });

  test("of one address and two ports, and of two virtual servers, are different ones", async (t) => {
    const { ipvs } = await open(t);
    const other = { ...SERVER, protocol: "UDP" } as const;
    await ipvs.apply([
      ...addVirtual(SERVER, other),
      ...addReal(SERVER, real(1), { ...real(1), port: 9090 }),
      ...addReal(other, real(1)),
      deleteReal(SERVER, real(1)),
    ]);
    assert.deepEqual(
      (await ipvs.realServers(SERVER))?.map(({ port }) => port),
      [9090],
    );
    assert.deepEqual(
      (await ipvs.realServers(other))?.map(({ port }) => port),
      [8080],
    );
  });

  test("know their connections, and keep them when their weight becomes 0", async (t) => {
    const { ipvs, connect } = await open(t);
    await ipvs.apply([...addVirtual(SERVER), ...addReal(SERVER, real(1))]);
    const close = await connect(SERVER, real(1));
    await ipvs.apply([updateReal(SERVER, real(1, 0))]);
    // The kernel updates the total of connections up to two seconds later.
    const found = await ipvs.realServers(SERVER);
    const active = found?.map(({ connections: _, ...now }) => now);
    assert.deepEqual(active, [{ ...real(1, 0), activeConnections: 1, inactiveConnections: 0 }]);
    await close();
    assert.equal((await ipvs.realServers(SERVER))?.[0]?.activeConnections, 0);
  });
}

/** Operations that fail if only {@link SERVER} with one real server exists. */
const REFUSED: readonly (readonly [what: string, code: string, cause: RegExp, operation: IpvsOperation])[] = [
  [
    "a virtual server that is there",
    "EEXIST",
    /add virtual server 10\.96\.0\.1:80\/TCP.*exists already/,
    added(SERVER),
  ],
  [
    "the same with another scheduler",
    "EEXIST",
    /exists already/,
    added({ ...SERVER, scheduler: "wrr", flags: IPVS_SERVICE_PERSISTENT, timeoutSeconds: 5 }),
  ],
  [
    "an unknown scheduler",
    "ENOENT",
    /no scheduler "nonesuch": load the module ip_vs_nonesuch/,
    added({ ...SERVER_6, scheduler: "nonesuch" }),
  ],
  [
    "an update to an unknown scheduler",
    "ENOENT",
    /no scheduler "nonesuch"/,
    { kind: "update-virtual-server", virtualServer: { ...SERVER, scheduler: "nonesuch" } },
  ],
  [
    "an update of a missing virtual server",
    "ESRCH",
    /no such virtual server/,
    { kind: "update-virtual-server", virtualServer: GONE },
  ],
  [
    "deleting a missing virtual server",
    "ESRCH",
    /no such virtual server/,
    { kind: "delete-virtual-server", virtualServer: GONE },
  ],
  ["a real server of a missing virtual server", "ESRCH", /no such virtual server/, onReal("add", GONE, real(1))],
  ["deleting one of a missing virtual server", "ESRCH", /no such virtual server/, deleteReal(GONE, real(1))],
  [
    "a real server that is there",
    "EEXIST",
    /add real server 10\.180\.0\.1:8080 of 10\.96\.0\.1:80\/TCP/,
    onReal("add"),
  ],
  ["an update of a missing real server", "ENOENT", /no such real server/, updateReal(SERVER, real(9))],
  ["deleting a missing real server", "ENOENT", /no such real server/, deleteReal(SERVER, real(9))],
  ["a real server of the other family", "EINVAL", /virtual server's family/, onReal("add", SERVER, real6(1))],
];

function added(virtualServer: VirtualServer): IpvsOperation {
  return { kind: "add-virtual-server", virtualServer };
}

function onReal(verb: "add", virtualServer: VirtualServerKey = SERVER, realServer = real(1)): IpvsOperation {
  return { kind: `${verb}-real-server`, virtualServer, realServer };
}

function refusalTests(open: Open): void {
  for (const [what, code, cause, operation] of REFUSED) {
    test(what, async (t) => {
      const { ipvs } = await open(t);
      await ipvs.apply([...addVirtual(SERVER), ...addReal(SERVER, real(1))]);
      const [failure, ...others] = await ipvs.apply([operation]);
      assert.deepEqual(others, []);
      assert.equal(failure?.operation, operation);
      assert.equal(failure.code, code);
      assert.match(failure.message, cause);
      assert.deepEqual(await list(ipvs), [SERVER]);
      assert.deepEqual(await weights(ipvs, SERVER), [["10.180.0.1", 1]]);
    });
  }

  test("the operations around a refused one are carried out", async (t) => {
    const { ipvs } = await open(t);
    const operations = [
      ...addVirtual(SERVER),
      ...addReal(GONE, real(1)),
      ...addReal(SERVER, real(1)),
      ...addVirtual(SERVER),
      ...addReal(SERVER, real(2)),
    ];
    const failures = await ipvs.apply(operations);
    assert.deepEqual(
      failures.map(({ operation, code }) => [operation, code]),
      [
        [operations[1], "ESRCH"],
        [operations[3], "EEXIST"],
      ],
    );
    assert.equal((await ipvs.realServers(SERVER))?.length, 2);
  });
}
