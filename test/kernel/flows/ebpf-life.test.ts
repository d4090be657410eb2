/** The eBPF mode from its first start to its end: the daemon dies, comes back, becomes another mode and goes, and no client notices. */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { BpfLink } from "../../../src/kernel/bpf/bpf.ts";
import type { Hook } from "../../../src/kernel/bpf/hooks.ts";
import { kernelBpf } from "../../../src/kernel/bpf/kernel-bpf.ts";
import { pinnedState } from "../../../src/kernel/bpf/testing/pinned-state.ts";
import { testBpffs } from "../../../src/kernel/bpf/testing/test-bpffs.ts";
import { reasonToSkip } from "../../../src/kernel/bpf/testing/test-cgroup.ts";
import { passing } from "../../../testkit/fakes/bpf/encode.ts";
import { defaultClusterCidr, nodeA } from "../../../testkit/net/topology-spec.ts";
import { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { ask, outcomes } from "./asking.ts";
import { clusterOf, FAMILIES, type ServiceSpec } from "./cluster-objects.ts";
import { expectTold } from "./ebpf-told.ts";
import { addressOf, type FlowNetwork, flowNetwork } from "./flow-network.ts";
import { ALL_MODES, type Mode, traitsOf } from "./modes.ts";
import { askSteadily, assertAlive, holdConnections } from "./steady-clients.ts";

const STABLE = 1;
const services: readonly ServiceSpec[] = [
  { name: "stable", number: STABLE, endpoints: ["local-1", "remote-1"] },
  { name: "sticky", number: 2, endpoints: ["local-1", "local-2"], spec: { sessionAffinity: "ClientIP" } },
  { name: "empty", number: 3, endpoints: [] },
];
/** The next look is half a minute later. */
const LOOKED_AGAIN_MS = 90_000;
const DETACHED = /Detached programs of an earlier process that decided at the socket/;
const TOLD = /^UDP IPv[46] \w+ ECONNABORTED$/;
const HOOKS = ["connect4", "connect6", "sendmsg4", "getpeername6", "post_bind4"] as const satisfies readonly Hook[];
const bpf = kernelBpf();

/** The cgroup's programs, by hook. */
const attached = ({ cgroup = "" }: FlowNetwork) => HOOKS.map((hook) => bpf.attached(hook, cgroup));

/** Another owner's program, which lets everything pass. */
function foreignProgram(
  t: TestContext,
  { cgroup = "" }: FlowNetwork,
  hook: Hook,
): { readonly id: number; readonly link: BpfLink } {
  const program = bpf.loadProgram(passing("foreign"), hook);
  const link = bpf.attach(program, hook, cgroup);
  t.after(() => {
    link.close();
    program.close();
  });
  return { id: program.id, link };
}

/** The folder of the daemon's network namespace. */
function ownFolder(pinFolder: string): string {
  const [cookie, ...others] = readdirSync(pinFolder);
  assert.deepEqual(others, []);
  return join(pinFolder, cookie ?? "");
}

async function removeRules({ daemon }: FlowNetwork): Promise<void> {
  for (const family of ["ip", "ip6"]) await daemon.namespace.exec(["nft", "delete", "table", family, "kube-proxy"]);
}

/** TCP from a pod to the service, in both families. */
async function met({ probers }: FlowNetwork): Promise<readonly string[]> {
  const answers = await Promise.all(
    FAMILIES.map((family) => ask(probers.pod, addressOf(STABLE, "cluster IP", "TCP", family), 6)),
  );
  return outcomes(answers.flat().filter(({ ok }) => !ok));
}

function chooseMode(network: FlowNetwork, first: Readonly<Record<string, unknown>>, mode: Mode): void {
  const chosen = { mode, clusterCIDR: defaultClusterCidr, ...traitsOf[mode].config };
  writeFileSync(join(network.daemon.folder, "config.json"), JSON.stringify({ ...first, nftables: {}, ...chosen }));
}

test("ebpf: sudden death, restart, other modes and the end, under connections that notice nothing", {
  skip: kernelSkip || reasonToSkip() || (ALL_MODES.includes("ebpf") ? false : "another run has the eBPF mode"),
}, async (t) => {
  const bpffs = await testBpffs(t);
  const pinFolder = `${bpffs.path}/kept`;
  const socket = join(tmpdir(), `kpts-ebpf-life-${process.pid}.sock`);
  // A daemon that is killed leaves it behind.
  t.after(() => rmSync(socket, { force: true }));
  const network = await flowNetwork(t, "ebpf", services, {
    pinFolder,
    args: [`--inspect-socket=${socket}`],
    ebpf: { holdNodePorts: true },
  });
  const { daemon } = network;
  const first = JSON.parse(readFileSync(join(daemon.folder, "config.json"), "utf8"));
  const foreign = HOOKS.map((hook) => foreignProgram(t, network, hook).id);
  const state = () => FAMILIES.map((family) => pinnedState(join(ownFolder(pinFolder), family), family));
  const owners = () =>
    attached(network).map((programs) => programs.map((id) => (foreign.includes(id) ? `foreign ${id}` : "ours")));
  const rules = () => traitsOf.ebpf.rules(daemon);

  await t.test("the commands that look say what is so", async () =>
    expectTold(network, { number: STABLE, socket, folder: ownFolder(pinFolder) }),
  );

  await t.test("killed and started again, it moves no client", async () => {
    const before = [state(), await rules(), owners()];
    assert.ok(attached(network).every((programs, at) => programs.length >= 2 && programs.at(-1) === foreign[at]));
    const held = await holdConnections(network, STABLE);
    const stopAsking = askSteadily(network, STABLE);
    await daemon.stop("SIGKILL");
    await sleep(100);
    const startedAt = Date.now();
    daemon.spawn();
    await daemon.synced(startedAt);
    assert.deepEqual(await stopAsking(), []);
    assert.deepEqual([state(), await rules(), owners()], before);
    await assertAlive(held);
  });

  await t.test("told to stop, it leaves what decides at the socket, and goes on with it", async () => {
    const before = [state(), owners()];
    await daemon.stop("SIGTERM");
    await removeRules(network);
    assert.deepEqual(await met(network), []);
    const startedAt = Date.now();
    daemon.spawn();
    await daemon.synced(startedAt);
    assert.deepEqual([state(), owners()], before);
    assert.ok((await rules()).includes("10.96.1.1"));
  });

  await t.test("it becomes every other mode and this one again", async () => {
    for (const mode of ["nftables", "ebpf", "nftables-flat", "ebpf", "iptables", "ebpf"] as const) {
      const held = await holdConnections(network, STABLE);
      const stopAsking = askSteadily(network, STABLE);
      chooseMode(network, first, mode);
      await daemon.stop("SIGTERM");
      const startedAt = Date.now();
      daemon.spawn();
      await daemon.synced(startedAt);
      const isOurs = mode === "ebpf";
      const isThere = (programs: readonly number[], at: number): boolean =>
        isOurs ? programs.length >= 2 : programs.join() === `${foreign[at]}`;
      await daemon.until(
        `what decides at the socket in mode ${mode}`,
        () => attached(network).every(isThere) && existsSync(pinFolder) === isOurs,
      );
      // When this mode ends, UDP sockets that it connected get an error, and one may be waiting for its answer.
      const troubles = (await stopAsking()).filter((what) => isOurs || !TOLD.test(what));
      assert.deepEqual(troubles, [], `on the way to ${mode}`);
      await assertAlive(held);
    }
    assert.ok(
      attached(network).every((programs, at) => programs[0] === foreign[at]),
      "those of others stay first",
    );
  });

  await t.test("a second process takes the rules, says so, and goes on when the first one is gone", async () => {
    const before = [state(), owners()];
    const config = JSON.parse(readFileSync(join(daemon.folder, "config.json"), "utf8"));
    const objects = clusterOf(services);
    const second = ProxyDaemon.prepare(daemon.namespace, { hostnameOverride: nodeA.name, objects, config });
    try {
      second.spawn();
      await second.logged(/Nothing is decided at the socket.*another process/s);
      await sleep(500);
      assert.deepEqual([state(), owners()], before);
      await second.stop("SIGTERM");
      assert.deepEqual([state(), owners()], before, "it leaves what is not its own");
      second.log = "";
      second.spawn();
      await second.logged(/another process/);
      await daemon.stop("SIGKILL");
      const goesOn = () => second.log.includes("Connections to services are decided at the socket");
      await second.until("the place of the first", goesOn);
      assert.deepEqual([state(), owners()], before);
    } finally {
      await second.dispose();
    }
  });

  await t.test("programs under names in another folder are detached at start, in this mode and in others", async () => {
    const of = (mode: Mode, folder: string) => {
      const { cgroupRoot } = first.ebpf;
      chooseMode(network, { ...first, ebpf: { cgroupRoot, pinFolder: `${bpffs.path}/${folder}` } }, mode);
    };
    const start = async (): Promise<void> => {
      daemon.log = "";
      const startedAt = Date.now();
      daemon.spawn();
      await daemon.synced(startedAt);
    };
    of("ebpf", "elsewhere");
    await start();
    // A process that was killed counts as alive for 25 s, wherever its programs are pinned.
    await daemon.until("their end", () => DETACHED.test(daemon.log), LOOKED_AGAIN_MS);
    const ours = attached(network).map((programs) => programs.length);
    assert.deepEqual(ours, [2, 3, 2, 3, 1], "one for each kind of socket, and the foreign one");
    assert.deepEqual(await met(network), []);
    await daemon.stop("SIGKILL");
    of("nftables", "kept");
    await start();
    await daemon.until("their end", () => attached(network).every(({ length }) => length === 1), LOOKED_AGAIN_MS);
    await daemon.logged(DETACHED);
    assert.deepEqual(await met(network), []);
    await daemon.stop("SIGKILL");
    chooseMode(network, first, "ebpf");
    await start();
    assert.doesNotMatch(daemon.log, /an earlier process/);
  });

  await t.test("--cleanup leaves nothing of it, also after a sudden death and in another mode", async () => {
    await daemon.stop("SIGKILL");
    assert.ok(
      attached(network).every((programs) => programs.length >= 2),
      "until then it decides",
    );
    chooseMode(network, first, "iptables");
    daemon.spawn(undefined, ["--cleanup"]);
    assert.equal(await daemon.ended(), 0, daemon.log);
    assert.deepEqual(
      attached(network),
      foreign.map((id) => [id]),
    );
    assert.equal(existsSync(pinFolder), false);
    assert.equal((await daemon.namespace.exec(["nft", "list", "tables"])).stdout.includes("kube-proxy"), false);
    const target = addressOf(STABLE, "cluster IP", "TCP", "IPv4");
    const [answer] = await network.probers.pod.connect({ ...target, count: 1, timeoutMs: 1000 });
    assert.equal(answer?.ok, false, "nothing leads there any more");
  });
});
