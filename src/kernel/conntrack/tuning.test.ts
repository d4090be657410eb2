import assert from "node:assert/strict";
import { test } from "node:test";
import { memorySysctls } from "../../../testkit/fakes/sysctl-memory.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { type ConntrackSettings, conntrackMax, tuneConntrack } from "./tuning.ts";

const DEFAULTS: ConntrackSettings = {
  maxPerCore: 32768,
  min: 131072,
  tcpEstablishedTimeoutMs: 86_400_000,
  tcpCloseWaitTimeoutMs: 3_600_000,
  tcpBeLiberal: true,
  udpTimeoutMs: 30_500,
  udpStreamTimeoutMs: 180_000,
};

const KERNEL = {
  "net/netfilter/nf_conntrack_max": 65536,
  "net/netfilter/nf_conntrack_tcp_timeout_established": 432000,
  "net/netfilter/nf_conntrack_tcp_timeout_close_wait": 60,
  "net/netfilter/nf_conntrack_tcp_be_liberal": 0,
  "net/netfilter/nf_conntrack_udp_timeout": 10,
  "net/netfilter/nf_conntrack_udp_timeout_stream": 120,
};

test("the table's size is scaled by CPUs, at least min, and never above a million entries", () => {
  assert.equal(conntrackMax({ maxPerCore: 32768, min: 131072 }, 2), 131072);
  assert.equal(conntrackMax({ maxPerCore: 32768, min: 131072 }, 8), 262144);
  assert.equal(conntrackMax({ maxPerCore: 32768, min: 131072 }, 64), 1048576);
  assert.equal(conntrackMax({ maxPerCore: 32768, min: 2_000_000 }, 64), 1048576);
  assert.equal(conntrackMax({ maxPerCore: 1, min: 2_000_000 }, 4), 2_000_000);
  assert.equal(conntrackMax({ maxPerCore: 0, min: 131072 }, 4), undefined);
});

test("all parameters are written in order, in whole seconds, and the hash table follows the maximum", async () => {
  const sysctls = memorySysctls(KERNEL);
  const moduleParameters = memorySysctls({ hashsize: 16384 });
  await tuneConntrack(DEFAULTS, { log: silentLogger, sysctls, moduleParameters, cpus: 8 });
  assert.deepEqual(sysctls.writes, [
    "net/netfilter/nf_conntrack_max=262144",
    "net/netfilter/nf_conntrack_tcp_timeout_established=86400",
    "net/netfilter/nf_conntrack_tcp_timeout_close_wait=3600",
    "net/netfilter/nf_conntrack_tcp_be_liberal=1",
    "net/netfilter/nf_conntrack_udp_timeout=30",
    "net/netfilter/nf_conntrack_udp_timeout_stream=180",
  ]);
  assert.deepEqual(moduleParameters.writes, ["hashsize=65536"]);
});

test("nothing is written where the kernel has the value already", async () => {
  const sysctls = memorySysctls(KERNEL);
  const moduleParameters = memorySysctls({ hashsize: 16384 });
  const deps = { log: silentLogger, sysctls, moduleParameters, cpus: 8 };
  await tuneConntrack(DEFAULTS, deps);
  const count = sysctls.writes.length;
  await tuneConntrack(DEFAULTS, deps);
  assert.equal(sysctls.writes.length, count);
  assert.equal(moduleParameters.writes.length, 1);
});

test("a table that is larger than wanted stays, also where nothing can be written", async () => {
  const sysctls = memorySysctls({ ...KERNEL, "net/netfilter/nf_conntrack_max": 262145 });
  sysctls.readOnly.add("net/netfilter/nf_conntrack_max");
  const moduleParameters = memorySysctls({ hashsize: 65536 });
  await tuneConntrack(DEFAULTS, { log: silentLogger, sysctls, moduleParameters, cpus: 8 });
  assert.equal(sysctls.values.get("net/netfilter/nf_conntrack_max"), 262145);
  assert.deepEqual(moduleParameters.writes, []);
});

test("zero leaves a parameter alone", async () => {
  const sysctls = memorySysctls(KERNEL);
  const settings: ConntrackSettings = {
    ...{ maxPerCore: 0, min: 0, tcpEstablishedTimeoutMs: 0, tcpCloseWaitTimeoutMs: 0 },
    ...{ tcpBeLiberal: false, udpTimeoutMs: 0, udpStreamTimeoutMs: 0 },
  };
  await tuneConntrack(settings, { log: silentLogger, sysctls, moduleParameters: memorySysctls() });
  assert.deepEqual(sysctls.writes, []);
});

test("the first failure stops and names the parameter", async () => {
  const sysctls = memorySysctls(KERNEL);
  sysctls.readOnly.add("net/netfilter/nf_conntrack_tcp_timeout_close_wait");
  const deps = { log: silentLogger, sysctls, moduleParameters: memorySysctls({ hashsize: 1048576 }), cpus: 8 };
  await assert.rejects(
    tuneConntrack(DEFAULTS, deps),
    /^Error: could not set conntrack parameters from kube-proxy configuration: .*nf_conntrack_tcp_timeout_close_wait/,
  );
  assert.equal(sysctls.writes.length, 2);
});

test("where conntrack was not used since the node booted, its module is loaded first", async () => {
  const sysctls = memorySysctls();
  const moduleParameters = memorySysctls({ hashsize: 1048576 });
  const loadModule = async (): Promise<void> => {
    for (const [name, value] of Object.entries(KERNEL)) sysctls.values.set(name, value);
  };
  await tuneConntrack(DEFAULTS, { log: silentLogger, sysctls, moduleParameters, cpus: 8, loadModule });
  assert.equal(sysctls.writes[0], "net/netfilter/nf_conntrack_max=262144");
});

test("a module that cannot be loaded is a parameter that is missing", async () => {
  const loadModule = () => Promise.reject(new Error("EPERM"));
  const deps = { log: silentLogger, sysctls: memorySysctls(), moduleParameters: memorySysctls(), cpus: 8, loadModule };
  await assert.rejects(
    tuneConntrack(DEFAULTS, deps),
    /^Error: could not set conntrack parameters from kube-proxy configuration: .*nf_conntrack_max: no such parameter$/,
  );
});

test("an unreadable hash size is a failure", async () => {
  const deps = { log: silentLogger, sysctls: memorySysctls(KERNEL), moduleParameters: memorySysctls(), cpus: 1 };
  await assert.rejects(tuneConntrack(DEFAULTS, deps), /could not set conntrack parameters.*hashsize/);
});

test("the log lines are upstream's", async () => {
  const lines: unknown[] = [];
  const log: Logger = { ...silentLogger, info: (message, facts) => void lines.push([message, facts]) };
  const settings = { ...DEFAULTS, tcpEstablishedTimeoutMs: 0, tcpCloseWaitTimeoutMs: 0, tcpBeLiberal: false };
  await tuneConntrack(
    { ...settings, udpTimeoutMs: 0, udpStreamTimeoutMs: 0 },
    { log, sysctls: memorySysctls(KERNEL), moduleParameters: memorySysctls({ hashsize: 1 }), cpus: 1 },
  );
  assert.deepEqual(lines, [
    ["Setting nf_conntrack_max", { nfConntrackMax: 131072 }],
    ["Set sysctl", { entry: "net/netfilter/nf_conntrack_max", value: 131072 }],
    ["Setting conntrack hashsize", { conntrackHashsize: 32768 }],
  ]);
});
