import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { parse } from "yaml";
import { FakeClock } from "../../sync/testing/fake-clock.ts";
import { formatUptime } from "../debug/z-pages.ts";
import type { HttpEndpoint } from "../http/http-endpoint.ts";
import { acceptsGzip } from "../http/shared-page.ts";
import { type Answer, type AskOptions, ask } from "../testing/http-client.ts";
import { memoryLog } from "../testing/memory-log.ts";
import { parseMetrics } from "../testing/metrics-text.ts";
import { createMetrics } from "./metrics.ts";
import { type MetricsServerOptions, startMetricsServer } from "./metrics-server.ts";

const stop = new AbortController();
const servers: HttpEndpoint[] = [];
const levels: number[] = [];
let fullPort = 0;
let barePort = 0;

function serve(options: Partial<MetricsServerOptions>): HttpEndpoint | undefined {
  return startMetricsServer({
    address: "127.0.0.1:0",
    families: createMetrics().families,
    mode: "iptables",
    configz: { kind: "KubeProxyConfiguration", apiVersion: "kubeproxy.config.k8s.io/v1alpha1", mode: "iptables" },
    log: memoryLog(),
    clock: new FakeClock(Date.now()),
    signal: stop.signal,
    isBindHardFail: false,
    onHardFail: () => {},
    ...options,
  });
}

async function start(options: Partial<MetricsServerOptions>): Promise<number> {
  const server = serve(options);
  assert.ok(server !== undefined);
  servers.push(server);
  return (await server.listening)?.port ?? 0;
}

before(async () => {
  fullPort = await start({
    flags: new Map([
      ["v", "2"],
      ["bind-address", "0.0.0.0"],
    ]),
    status: { version: "v1.36.2", implementation: "kube-proxy-ts 1.2.3 (commit unknown)" },
    setVerbosity: (level) => levels.push(level),
  });
  barePort = await start({});
});

after(async () => {
  stop.abort();
  await Promise.all(servers.map(({ closed }) => closed));
});

function get(path: string, options: AskOptions = {}): Promise<Answer> {
  return ask(fullPort, path, options);
}

test("an empty address serves nothing", () => assert.equal(serve({ address: "" }), undefined));

test("healthz always passes, in short, in detail and with exclusions", async () => {
  const short = await get("/healthz");
  assert.deepEqual([short.status, short.text], [200, "ok"]);
  assert.equal(short.headers["content-type"], "text/plain; charset=utf-8");
  assert.equal((await get("/healthz/ping")).text, "ok");
  assert.equal((await get("/healthz?verbose")).text, "[+]ping ok\nhealthz check passed\n");
  assert.equal((await get("/healthz?verbose&exclude=ping")).text, "[+]ping excluded: ok\nhealthz check passed\n");
});

test("metrics come as text with the start time, or compressed for who takes it", async () => {
  const plain = await get("/metrics");
  assert.equal(plain.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
  assert.equal(plain.headers["content-encoding"], undefined);
  const start = Number(plain.headers["process-start-time-unix"]);
  assert.ok(Math.abs(start - (Date.now() / 1000 - process.uptime())) < 2);
  assert.ok(parseMetrics(plain.text).has("kubeproxy_sync_proxy_rules_service_changes_total"));

  const packed = await get("/metrics", { headers: { "Accept-Encoding": "gzip, deflate" } });
  assert.equal(packed.headers["content-encoding"], "gzip");
  assert.ok(parseMetrics(gunzipSync(packed.bytes).toString()).has("kubeproxy_sync_proxy_rules_service_changes_total"));
});

test("gzip is used exactly when it is accepted", () => {
  const accepted = ["gzip", "deflate, gzip;q=0.5", "*", "GZIP", "gzip;q=1.0, *;q=0"];
  const refused = ["", "identity", "gzip;q=0", "gzip; q=0.000", "*;q=0", "*, gzip;q=0", "x-gzip-like"];
  assert.deepEqual(
    accepted.map(acceptsGzip),
    accepted.map(() => true),
  );
  assert.deepEqual(
    refused.map(acceptsGzip),
    refused.map(() => false),
  );
});

test("slis count the health check and can be reset", async () => {
  const checks = async (port: number) => {
    const families = parseMetrics((await ask(port, "/metrics/slis")).text);
    assert.ok(families.has("process_start_time_seconds"));
    return families.get("kubernetes_healthchecks_total")?.samples.map(({ labels, value }) => [labels, value]);
  };
  assert.equal(await checks(barePort), undefined);
  await ask(barePort, "/healthz");
  await ask(barePort, "/healthz");
  assert.deepEqual(await checks(barePort), [[{ name: "ping", status: "success", type: "healthz" }, 2]]);
  assert.equal((await ask(barePort, "/metrics/slis", { method: "DELETE" })).text, "metrics reset\n");
  assert.equal(await checks(barePort), undefined);
});

test("proxyMode is the bare word and configz the wrapped configuration in its order", async () => {
  const mode = await get("/proxyMode");
  assert.deepEqual(
    [mode.text, mode.headers["content-type"], mode.headers["x-content-type-options"]],
    ["iptables", "text/plain; charset=utf-8", "nosniff"],
  );
  const configz = await get("/configz");
  assert.equal(
    configz.text,
    '{"kubeproxy.config.k8s.io":{"kind":"KubeProxyConfiguration","apiVersion":"kubeproxy.config.k8s.io/v1alpha1","mode":"iptables"}}',
  );
  assert.equal(configz.headers["content-type"], "application/json");
});

test("PUT sets the verbosity; anything else is refused and changes nothing", async () => {
  const put = (body: string) => get("/debug/flags/v", { method: "PUT", body });
  const set = await put("5");
  assert.deepEqual([set.status, set.text], [200, "successfully set klog.logging.verbosity to 5\n"]);
  for (const body of ["", "-1", "abc", "1.5", "5 ", "99999999999", "9".repeat(200_000)]) {
    const answer = await put(body);
    assert.equal(answer.status, 400, body.slice(0, 20));
    assert.match(answer.text, /expected a number from 0 to 2147483647, got /);
  }
  const wrong = await get("/debug/flags/v");
  assert.deepEqual([wrong.status, wrong.text], [406, "unsupported http method\n"]);
  assert.deepEqual(levels, [5]);
  for (const path of ["/debug/flags", "/debug/flags/", "/debug/flags/other"]) {
    assert.match((await get(path)).text, /href="\/debug\/flags\/v"/);
  }
});

test("debug, flag and status pages exist only when asked for, and the root never", async () => {
  for (const path of ["/debug/flags", "/debug/flags/v", "/debug/pprof/", "/flagz", "/statusz", "/", "/metrics/"]) {
    assert.equal((await ask(barePort, path)).status, 404, path);
  }
});

test("flagz lists every flag, sorted, for people and for programs", async () => {
  const text = await get("/flagz", { headers: { Accept: "text/*" } });
  assert.match(text.text, /^\nkube-proxy flagz\n.+\n\nbind-address(:|: |=| )0\.0\.0\.0\nv(:|: |=| )2\n$/);
  const json = await get("/flagz", {
    headers: { Accept: "application/json;g=config.k8s.io;v=v1beta1;as=Flagz" },
  });
  assert.equal(
    json.text,
    '{"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"kube-proxy"},"flags":{"bind-address":"0.0.0.0","v":"2"}}',
  );
  const yaml = await get("/flagz", { headers: { Accept: "application/yaml;g=config.k8s.io;v=v1beta1;as=Flagz" } });
  assert.deepEqual(parse(yaml.text), JSON.parse(json.text));
});

test("statusz tells versions, uptime and paths; the older version warns; plain JSON is refused", async () => {
  const text = (await get("/statusz")).text;
  assert.match(text, /^\nkube-proxy statusz\n/);
  assert.match(text, /\nUp(:|: |=| )\d+ hr \d\d min \d\d sec\n/);
  assert.match(text, /\nBinary version(:|: |=| )1\.36\.2\nEmulation version(:|: |=| )1\.36\n/);
  assert.match(text, /\nImplementation(:|: |=| )kube-proxy-ts 1\.2\.3 \(commit unknown\)\n/);
  assert.match(text, /\nPaths(:|: |=| )\/configz \/flagz \/healthz \/metrics \/proxyMode\n$/);
  const old = await get("/statusz", {
    headers: { Accept: "application/json;v=v1alpha1;g=config.k8s.io;as=Statusz" },
  });
  assert.equal(JSON.parse(old.text).apiVersion, "config.k8s.io/v1alpha1");
  assert.match(old.headers.warning?.toString() ?? "", /^299 - "This version of the statusz endpoint is deprecated/);
  for (const accept of ["application/json", "application/json;g=config.k8s.io;v=v1beta1;as=Flagz", "image/png"]) {
    const refused = await get("/statusz", { headers: { Accept: accept } });
    assert.deepEqual([refused.status, JSON.parse(refused.text).reason], [406, "NotAcceptable"], accept);
  }
});

test("uptime goes on where the machine's clock is set", async () => {
  const status = { version: "v1.37.0", implementation: "kube-proxy-ts" };
  const port = await start({ status, clock: new FakeClock(Date.now() + 365 * 86_400_000) });
  const { text } = await ask(port, "/statusz", {
    headers: { Accept: "application/json;g=config.k8s.io;v=v1beta1;as=Statusz" },
  });
  const { uptimeSeconds } = JSON.parse(text) as { readonly uptimeSeconds: number };
  assert.ok(Math.abs(uptimeSeconds - process.uptime()) < 10, `${uptimeSeconds} s`);
});

test("uptime is hours, minutes and seconds", () => {
  assert.deepEqual([formatUptime(59.9), formatUptime(3600 * 100 + 61)], ["0 hr 00 min 59 sec", "100 hr 01 min 01 sec"]);
});
