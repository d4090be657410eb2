/** The real program against the test API server, in a namespace, with kubeadm's unmodified files. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { signalChild } from "../../src/kernel/child-process.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { type ApiDaemon, PROGRAM, startApiDaemon, startClusterServer } from "./api-daemon.ts";
import { node, service, serviceCidr, slice } from "./example-objects.ts";
import { CONFIG_CONF } from "./kubeadm-files.ts";
import type { TestApiServer } from "./test-api-server.ts";

function rules(): string {
  return execFileSync("iptables-save", ["-t", "nat"], { encoding: "utf8" });
}

async function untilRules(daemon: ApiDaemon, expected: RegExp): Promise<void> {
  await daemon
    .until(`rules that match ${expected}`, () => expected.test(rules()))
    .catch((error: unknown) => {
      throw new Error(`${String(error)}\nthe rules:\n${rules()}`);
    });
}

/** The server's Event objects by reason. */
function eventsOf(server: TestApiServer): ReadonlyMap<unknown, Readonly<Record<string, unknown>>> {
  return new Map([...server.store.objects("events").values()].map(({ object }) => [object.reason, object]));
}

/** The UID that the server assigned to an object. */
function uidOf(server: TestApiServer, plural: "nodes" | "services", key: string): string {
  const uid = server.store.objects(plural).get(key)?.object.metadata.uid;
  assert.ok(uid !== undefined, key);
  return uid;
}

/** Occupies a port on all addresses until the test ends. */
async function occupy(t: TestContext, port: number): Promise<void> {
  const blocker = createServer();
  await new Promise<void>((resolve) => void blocker.listen(port, "::", resolve));
  t.after(() => new Promise<void>((resolve) => void blocker.close(() => resolve())));
}

inNetns(import.meta.url, { name: "apidaemon", timeoutMs: 180_000 }, () => {
  test("with kubeadm's files and permissions it programs what the API server has, and follows it", async (t) => {
    const server = await startClusterServer(t);
    const daemon = startApiDaemon(t, server);
    await untilRules(daemon, /--to-destination 10\.128\.1\.1:8080/);
    server.put("endpointslices", slice(1, 1, 7));
    await untilRules(daemon, /--to-destination 10\.135\.1\.1:8080/);

    assert.match(daemon.log, /"Starting service config controller"/);
    assert.match(daemon.log, /"Caches are synced" controller="endpoint slice config"/);
    assert.doesNotMatch(daemon.log, /Failed to watch/);
    await daemon.until("the event", () => eventsOf(server).size > 0);
    const event = eventsOf(server).get("Starting");
    assert.deepEqual(event?.regarding, {
      apiVersion: "v1",
      kind: "Node",
      name: "node-a",
      uid: uidOf(server, "nodes", "node-a"),
    });
    assert.match(String(event?.note), /^Starting kube-proxy \(kube-proxy-ts [\d.]+\) in iptables mode$/);
    const agent = /^kube-proxy\/v1\.37\.0 \(linux\/\w+\) kubernetes\/unknown kube-proxy-ts\/[\d.]+ \([0-9a-f]{40}\)$/;
    assert.match(String(server.seen("watch", "services")[0]?.headers["user-agent"]), agent);
    assert.match(daemon.log.split("\n")[0] ?? "", /"Starting kube-proxy-ts" version=/);
    const metrics = await (await fetch("http://127.0.0.1:10249/metrics")).text();
    const build =
      /^kubeproxy_ts_build_info\{version="[\d.]+",commit="[0-9a-f]{40}",node="v[\d.]+",mode="iptables"\} 1$/m;
    assert.match(metrics, build);
    assert.match(metrics, /^rest_client_requests_total\{code="200",method="GET",host="127\.0\.0\.1:\d+"\} 4$/m);

    const before = rules();
    server.cutConnections();
    server.store.compact();
    server.delete("services", service(1));
    await untilRules(daemon, /^(?![\s\S]*10\.135\.1\.1)/);
    assert.match(before, /10\.96\.0\.1\/32/);
    signalChild(daemon.child, "SIGTERM");
    assert.equal(await daemon.ended(4_000), 0);
    assert.equal(server.connections, 0);
  });

  for (const [port, reason, note] of [
    [10256, "FailedToStartProxierHealthcheck", "healthz server failed: failed to start proxy healthz on 0.0.0.0:10256"],
    [10249, "FailedToStartMetricServer", "starting metrics server failed: listen EADDRINUSE"],
  ] as const) {
    test(`with bindAddressHardFail a port ${port} that is taken ends it, and an event on the Node says so`, async (t) => {
      const server = await startClusterServer(t);
      await occupy(t, port);
      const daemon = startApiDaemon(t, server, {
        config: CONFIG_CONF.replace("bindAddressHardFail: false", "bindAddressHardFail: true"),
      });
      assert.equal(await daemon.ended(), 1);
      const event = eventsOf(server).get(reason);
      assert.deepEqual([event?.type, event?.action], ["Warning", "StartKubeProxy"]);
      assert.ok(String(event?.note).startsWith(note), String(event?.note));
      assert.match(daemon.log, /"command failed" err=".*address already in use/);
    });
  }

  test("pod CIDRs are waited for, a deleted Node is borne, other pod CIDRs end it", async (t) => {
    const server = await startClusterServer(t);
    const own = node("node-a");
    server.put("nodes", { ...own, spec: {} });
    const daemon = startApiDaemon(t, server, {
      config: CONFIG_CONF.replace('detectLocalMode: ""', "detectLocalMode: NodeCIDR"),
    });
    await daemon.said(/"Waiting for the node's pod CIDRs" node="node-a" atMostSeconds=300/);
    const health = await fetch("http://127.0.0.1:10256/healthz");
    assert.equal(health.status, 200, "the Node is there, and nothing is late");
    server.put("nodes", own);
    await untilRules(daemon, /! -s 10\.244\.0\.0\/24 -d 10\.96\.0\.1\/32/);
    server.delete("nodes", own);
    await daemon.said(/"Node is being deleted" node="node-a"/);
    server.put("nodes", { ...own, spec: { podCIDRs: ["10.245.0.0/24"] } });
    assert.equal(await daemon.ended(), 1);
    assert.match(daemon.log, /"PodCIDRs changed for the node" .*newPodCIDRs=\["10\.245\.0\.0\/24"\]/);
    assert.match(rules(), /10\.96\.0\.1\/32/, "the rules stay");
  });

  test("nftables mode: ServiceCIDRs that come after Services and EndpointSlices are in the rules at once", async (t) => {
    const server = await startClusterServer(t);
    server.delete("servicecidrs", serviceCidr());
    const daemon = startApiDaemon(t, server, { config: CONFIG_CONF.replace('mode: ""', "mode: nftables") });
    const listed = () => execFileSync("nft", ["list", "ruleset"], { encoding: "utf8" });
    await daemon.synced();
    assert.match(listed(), /dnat to 10\.128\.1\.1:8080/);
    assert.doesNotMatch(listed(), /Drop traffic to unallocated ClusterIPs/);
    server.put("servicecidrs", serviceCidr());
    // Upstream writes this rule only in its next full sync, an hour later.
    await daemon.until("the rule", () => /Drop traffic to unallocated ClusterIPs/.test(listed()));
  });

  test("a health-check port that is taken becomes an event on the Service, counted while it lasts", async (t) => {
    const server = await startClusterServer(t);
    await occupy(t, 31_234);
    const balanced = { type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: 31_234 };
    server.put("services", service(1, balanced));
    const daemon = startApiDaemon(t, server);
    const event = () => eventsOf(server).get("FailedToStartServiceHealthcheck");
    await daemon.until("the event", () => event() !== undefined);
    const { regarding, action, type, note } = event() ?? {};
    assert.deepEqual(
      [regarding, action, type],
      [
        {
          apiVersion: "v1",
          kind: "Service",
          namespace: "default",
          name: "svc-1",
          uid: uidOf(server, "services", "default/svc-1"),
        },
        "Listen",
        "Warning",
      ],
    );
    assert.match(
      String(note),
      /^node node-a failed to start healthcheck "default\/svc-1" on port 31234: listen EADDRINUSE/,
    );
    server.put("endpointslices", slice(1, 2, 3));
    await daemon.until("the series", () => event()?.series !== undefined);
    const failures = async () => Object(await (await fetch("http://127.0.0.1:10256/healthz")).json()).failures;
    const [failure] = await failures();
    assert.deepEqual([failure.ipFamily, failure.subject], ["IPv4", "health-check port 31234 of default/svc-1"]);
    assert.match(failure.reason, /EADDRINUSE/);
    server.put("services", service(1));
    await daemon.until("no failures", async () => (await failures()) === undefined);
  });

  test("a start-up taint goes once the rules are in force; others stay, also those that come meanwhile", async (t) => {
    const server = await startClusterServer(t);
    const put = (...keys: string[]) => {
      const spec = { podCIDR: "10.244.0.0/24", taints: keys.map((key) => ({ key, effect: "NoSchedule" })) };
      server.put("nodes", { ...node("node-a"), spec });
    };
    put("example.com/starting", "other");
    const daemon = startApiDaemon(t, server, { args: ["--startup-taint=example.com/starting"] });
    await daemon.until("the refusal", () => /start-up taint cannot be removed.*403.*patch of nodes/.test(daemon.log));
    const failures = async () => Object(await (await fetch("http://127.0.0.1:10256/healthz?verbose")).json()).failures;
    const [failure] = await failures();
    assert.equal(failure.subject, "start-up taint");
    assert.match(failure.reason, /403/);
    assert.match(rules(), /--to-destination 10\.128\.1\.1:8080/);
    let isChanged = false;
    server.switches.fault = ({ verb, plural }) => {
      if (verb === "patch" && plural === "nodes" && !isChanged) {
        isChanged = true;
        put("example.com/starting", "other", "late");
      }
      return undefined;
    };
    server.switches.isAllowed = undefined;
    await daemon.until("the removal", () => daemon.log.includes("Removed the start-up taint"));
    assert.equal(await failures(), undefined);
    assert.deepEqual(server.store.objects("nodes").get("node-a")?.object.spec, {
      podCIDR: "10.244.0.0/24",
      taints: ["other", "late"].map((key) => ({ key, effect: "NoSchedule" })),
    });
  });

  test("/healthz sees that connections do not go through the rules, and whose fault that is", async (t) => {
    const server = await startClusterServer(t);
    for (const words of [
      "link add pods type veth peer name peer",
      "link set peer up",
      "link set pods up",
      "addr add 10.128.1.1/24 dev pods",
      "route add default dev pods",
    ])
      execFileSync("ip", words.split(" "));
    t.after(() => execFileSync("ip", ["link", "del", "pods"]));
    const pod = createServer((socket) => socket.destroy()).listen(8080, "10.128.1.1");
    t.after(() => pod.close());
    const daemon = startApiDaemon(t, server, { args: ["--healthz-service=default/svc-1:http"] });
    const health = async () => {
      const answer = await fetch("http://127.0.0.1:10256/healthz").catch(() => undefined);
      const { failures = [], degraded = [] } = answer === undefined ? {} : JSON.parse(await answer.text());
      return { status: answer?.status, subjects: [...failures, ...degraded].map(({ reason }) => reason).join() };
    };
    const untilHealth = async (status: number, reason: RegExp): Promise<void> => {
      await daemon.until(`${status} ${reason}`, async () => {
        const now = await health();
        return now.status === status && reason.test(now.subjects);
      });
    };
    await untilHealth(200, /^$/);
    const byPass = ["-t", "nat", "-I", "OUTPUT", "-d", "10.96.0.1", "-j", "ACCEPT"];
    execFileSync("iptables", byPass);
    await untilHealth(503, /though its endpoint 10\.128\.1\.1:8080 answers/);
    assert.equal((await fetch("http://127.0.0.1:10256/livez")).status, 200);
    pod.close();
    await untilHealth(200, /nor do its endpoints answer/);
    execFileSync("iptables", byPass.with(2, "-D"));
  });

  test("feature gates take pages away, and profiling adds some", async (t) => {
    const server = await startClusterServer(t);
    const gates = "featureGates: { ComponentFlagz: false, ComponentStatusz: false, WatchListClient: false }\n";
    const daemon = startApiDaemon(t, server, {
      config: gates + CONFIG_CONF.replace("enableProfiling: false", "enableProfiling: true"),
    });
    await daemon.said(/"Caches are synced" controller="service config"/);
    const status = async (path: string) => (await fetch(`http://127.0.0.1:10249${path}`)).status;
    assert.deepEqual(
      [await status("/flagz"), await status("/statusz"), await status("/debug/pprof/"), await status("/configz")],
      [404, 404, 200, 200],
    );
    assert.equal(server.seen("list", "services").length, 1, "no streaming list");
    const set = await fetch("http://127.0.0.1:10249/debug/flags/v", { method: "PUT", body: "4" });
    assert.equal(await set.text(), "successfully set klog.logging.verbosity to 4\n");
  });

  test("a change of the configuration file ends it, so that it is started again", async (t) => {
    const server = await startClusterServer(t);
    // Writes from inside its mount namespace, several times because the program may not be watching yet.
    const write = "for i in 1 2 3 4 5 6 7 8; do sleep 1; echo >> /var/lib/kube-proxy/config.conf; done";
    const daemon = startApiDaemon(t, server, { program: ["sh", "-c", `(${write}) & exec "$@"`, "sh", ...PROGRAM] });
    assert.equal(await daemon.ended(), 1);
    assert.match(daemon.log, /err="content of the proxy server's configuration file was updated"/);
  });
});
