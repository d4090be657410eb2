/**
 * The table of conntrack-cases.ts with real kernel entries, in every mode whose rules translate addresses: changes that
 * the program follows, those during an outage of the API server, and those while no process was running.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { signalChild } from "../../../src/kernel/child-process.ts";
import { ClientCgroup, cgroupMount } from "../../../testkit/net/client-cgroup.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { type ApiDaemon, startApiDaemon, startClusterServer } from "../../apiserver/api-daemon.ts";
import type { ApiObject } from "../../apiserver/object-store.ts";
import type { TestApiServer } from "../../apiserver/test-api-server.ts";
import { addressesOf, FAMILIES, type ServiceSpec, serviceObjects, servingPods } from "./cluster-objects.ts";
import { CASES, type Case, type Entry, OWN } from "./conntrack-cases.ts";
import { ALL_MODES, type Mode, traitsOf } from "./modes.ts";

/** How the program learns about the changes. */
const WAYS = ["live", "outage", "restart"] as const;
type Way = (typeof WAYS)[number];

const CLIENTS = { IPv4: "192.0.2.77", IPv6: "2001:db8:a::77" } as const;
const CANARY = 90;

/** User-mode Linux is built without them. */
const HAS_ZONES = process.env.KPTS_VM !== "uml";
/** Numbered by their client's port. */
const ENTRIES = CASES.flatMap(({ what, entries }) => entries.map((entry) => ({ what, ...entry })))
  .filter(({ zone }) => zone === undefined || HAS_ZONES)
  .map((entry, at) => ({ ...entry, clientPort: 20_000 + at }));
const canaries = FAMILIES.map((family, at) => ({
  ...{ what: "canary", fate: "goes", family, protocol: "UDP", clientPort: 10_000 + at },
  asked: [addressesOf(CANARY)["cluster IP"][family], 80],
  answering: [family === "IPv4" ? servingPods["remote-1"].ipv4 : servingPods["remote-1"].ipv6, 5353],
})) satisfies readonly (Entry & { readonly what: string; readonly clientPort: number })[];

function track(entries: readonly (Entry & { readonly clientPort: number })[]): void {
  const lines = entries.map(({ family, protocol, asked, answering, zone, clientPort }) => {
    const tags = protocol === "SCTP" ? ["--orig-vtag", "1", "--reply-vtag", "2"] : [];
    const state = protocol === "UDP" ? [] : ["--state", "ESTABLISHED", ...tags];
    return [
      ...["-I", "-p", protocol.toLowerCase(), "-t", "600", ...state, ...(zone === undefined ? [] : ["-w", zone])],
      ...["-s", CLIENTS[family], "--sport", clientPort, "-d", asked[0], "--dport", asked[1]],
      ...["-r", answering[0], "--reply-port-src", answering[1], "-q", CLIENTS[family], "--reply-port-dst", clientPort],
    ].join(" ");
  });
  const folder = mkdtempSync(join(tmpdir(), "kpts-cases-"));
  // It reads one family at a time.
  for (const family of FAMILIES) {
    const own = lines.filter((line) => line.includes(` ${CLIENTS[family]} `));
    writeFileSync(join(folder, family), `${own.join("\n")}\n`);
    execFileSync("conntrack", ["-R", join(folder, family)], { stdio: "pipe" });
  }
  rmSync(folder, { recursive: true });
}

/** Client ports of the tracked entries. */
function tracked(): ReadonlySet<number> {
  const list = (family: string) => execFileSync("conntrack", ["-L", "-f", family], { encoding: "utf8", stdio: "pipe" });
  const ours = ["ipv4", "ipv6"]
    .map(list)
    .join("")
    .matchAll(/ src=(?:192\.0\.2\.77|2001:db8:a::77) .*? sport=(\d+)/g);
  return new Set([...ours].map(([, port]) => Number(port)));
}

/** Puts the Services that exist, and deletes those that do not. */
function put(server: TestApiServer, services: readonly (readonly [number, ServiceSpec | undefined])[]): void {
  for (const [number, spec] of services) {
    const wanted = serviceObjects(spec ?? { name: `case-${number}`, number, endpoints: [] }) as ApiObject[];
    for (const [at, object] of wanted.entries()) {
      const plural = at === 0 ? "services" : "endpointslices";
      if (spec === undefined) server.delete(plural, object);
      else server.put(plural, object);
    }
  }
}

const states = (when: "before" | "after") =>
  CASES.map((one: Case, at) => [Number(one.before?.number ?? at), one[when]] as const);
const canary = (...endpoints: ServiceSpec["endpoints"]) =>
  [[CANARY, { name: "canary", number: CANARY, endpoints }]] as const;

/** What differs from the table. */
function wrong(way: Way, mode: Mode, which: (isWanted: boolean) => boolean): readonly string[] {
  const there = tracked();
  return ENTRIES.flatMap(({ what, fate, family, protocol, asked, answering, clientPort }) => {
    const isKnown = way !== "restart" || mode.startsWith("nftables") || mode === "ebpf";
    const stays = fate === "stays" || (fate === "goes unless away" && !isKnown);
    if (there.has(clientPort) === stays || !which(stays)) return [];
    return [`${what}: ${family} ${protocol} ${asked.join(" ")} → ${answering.join(" ")} must ${stays ? "stay" : "go"}`];
  });
}

async function changed(
  t: TestContext,
  mode: Mode,
  way: Way,
  server: TestApiServer,
  start: () => ApiDaemon,
): Promise<void> {
  put(server, [...states("before"), ...canary("local-1", "remote-1")]);
  let daemon = start();
  await daemon.synced();
  // The last object put is in the kernel: what comes later is one change.
  await daemon.until("rules", () => rules(mode).includes(addressesOf(CANARY)["cluster IP"].IPv6));
  execFileSync("conntrack", ["-F"], { stdio: "pipe" });
  track([...ENTRIES, ...canaries]);
  assert.equal(tracked().size, ENTRIES.length + canaries.length, "entries that were made");
  if (way === "outage") await server.shutDown();
  if (way === "restart") {
    signalChild(daemon.child, "SIGKILL");
    await daemon.ended();
  }
  put(server, states("after"));
  if (way === "outage") await server.restart();
  if (way === "restart") daemon = start();
  const mustGo = () => wrong(way, mode, (stays) => !stays);
  await daemon
    .until("what must go to be gone", () => mustGo().length === 0)
    .catch((error: unknown) => assert.fail(`${mustGo().join("\n")}\n${String(error)}`));
  // Looks run one after the other: once the next has deleted something, this one is over.
  put(server, canary("local-1"));
  await daemon.until("the next look", () => canaries.every(({ clientPort }) => !tracked().has(clientPort)));
  assert.deepEqual(
    wrong(way, mode, () => true),
    [],
  );
  t.diagnostic(`${ENTRIES.length} entries`);
}

function rules(mode: Mode): string {
  const argv: readonly [string, ...string[]] =
    mode === "iptables" ? ["ip6tables-save"] : mode === "ipvs" ? ["ipvsadm", "-Sn"] : ["nft", "list", "ruleset"];
  return execFileSync(argv[0], argv.slice(1), { encoding: "utf8" });
}

inNetns(import.meta.url, { name: "ctcases", timeoutMs: 300_000 }, () => {
  for (const mode of ALL_MODES.filter((one) => !traitsOf[one].carriesTraffic)) {
    for (const way of WAYS) {
      test(`${mode}, ${way}: entries go and stay as the table says`, async (t) => {
        for (const address of Object.values(OWN)) execFileSync("ip", ["address", "replace", address, "dev", "lo"]);
        const server = await startClusterServer(t);
        const ebpf = { pinFolder: "none", cgroupRoot: "" };
        if (mode === "ebpf") {
          // `ip netns exec` has its own /sys.
          if (cgroupMount() === undefined) execFileSync("mount", ["-t", "cgroup2", "none", "/sys/fs/cgroup"]);
          const cgroup = ClientCgroup.create("kpts-ctcases");
          t.after(() => cgroup.remove());
          ebpf.cgroupRoot = cgroup.path;
        }
        const config = JSON.stringify({
          ...{ apiVersion: "kubeproxy.config.k8s.io/v1alpha1", kind: "KubeProxyConfiguration", mode },
          ...{ clusterCIDR: "10.180.0.0/16", clientConnection: { kubeconfig: "/var/lib/kube-proxy/kubeconfig.conf" } },
          conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: "0s", tcpCloseWaitTimeout: "0s" },
          ...(mode === "ebpf" && { ebpf }),
          ...traitsOf[mode].config,
        });
        await changed(t, mode, way, server, () => startApiDaemon(t, server, { config, args: ["-v=2"] }));
      });
    }
  }
});
