/** Changes to the table between a sync's beginning and its end: the backend on the real kernel, step by step. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { beforeEach, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { openNetlinkRuleset } from "../../../src/kernel/nftables/netlink-nftables.ts";
import { type Nftables, NftError } from "../../../src/kernel/nftables/nftables.ts";
import { silentLogger } from "../../../src/logging/logger.ts";
import { NftablesBackend } from "../../../src/modes/nftables/backend.ts";
import { CONFIGS, clusterChain, newModel } from "../../../src/modes/nftables/testing/backend-rig.ts";
import { local, port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { stretched, until } from "../../../testkit/support/patience.ts";
import { canonicalNftables } from "../../conformance/canonical-nftables.ts";

const KILLED = fileURLToPath(new URL("./killed-backend.ts", import.meta.url));
const TABLE = "kube-proxy";

function nft(commands: string): void {
  execFileSync("nft", ["-f", "-"], { input: `${commands}\n`, stdio: ["pipe", "ignore", "pipe"] });
}

function listed(): string {
  const text = execFileSync("nft", ["-j", "list", "ruleset"], { encoding: "utf8" });
  return canonicalNftables(JSON.parse(text).nftables);
}

/** One-time actions, each just before a step of the backend's. */
interface Hooks {
  beforeTransaction?: (() => void) | undefined;
  afterRead?: (() => void) | undefined;
}

function take(hooks: Hooks, name: keyof Hooks): void {
  const action = hooks[name];
  hooks[name] = undefined;
  action?.();
}

/** A synced model with two services. */
async function syncedModel(t: TestContext, options?: Parameters<typeof openNetlinkRuleset>[0]) {
  const ruleset = openNetlinkRuleset(options);
  const hooks: Hooks = {};
  const connect = (): Nftables => {
    const table = ruleset.open({ family: "ip", table: TABLE });
    return {
      ...table,
      transact: async (operations, wanted) => {
        take(hooks, "beforeTransaction");
        await table.transact(operations, wanted);
      },
      read: async () => {
        const content = await table.read();
        take(hooks, "afterRead");
        return content;
      },
    };
  };
  const model = newModel({ connect });
  t.after(async () => {
    model.rig.close();
    await ruleset.close();
  });
  const [a, b] = [port("a", "10.96.0.1"), port("b", "10.96.0.2")];
  model.set(a, [local("10.180.0.1"), remote("10.180.0.2")]);
  model.set(b, [remote("10.180.0.3")]);
  await model.rig.sync();
  return { model, hooks, a, b };
}

inNetns(import.meta.url, { name: "nftmid" }, () => {
  beforeEach(() => nft("flush ruleset"));

  test("the table is deleted while a change is on its way: everything is made again by the same sync", async (t) => {
    const { model, hooks, a } = await syncedModel(t);
    model.setEndpoints(a, [remote("10.180.0.9")]);
    hooks.beforeTransaction = () => nft(`delete table ip ${TABLE}`);
    assert.deepEqual((await model.rig.sync()).failures, []);
    const found = listed();
    const said = model.rig.log.find(({ message }) => message.includes("partial sync was refused"));
    assert.match(String(said?.error), new RegExp(`no such|ENOENT|${TABLE}`));
    nft("flush ruleset");
    model.rig.restart();
    await model.rig.sync();
    assert.equal(found, listed());
  });

  for (const when of ["afterRead", "beforeTransaction"] as const) {
    test(`the table is deleted in the middle of a full sync (${when}): it starts again`, async (t) => {
      const { model, hooks, a } = await syncedModel(t);
      const before = listed();
      nft(`flush chain ip ${TABLE} ${clusterChain(a)}`);
      hooks[when] = () => nft(`delete table ip ${TABLE}`);
      assert.deepEqual((await model.rig.sync({ full: true })).failures, []);
      assert.equal(hooks[when], undefined);
      assert.equal(listed(), before);
      assert.equal(model.rig.metrics.syncFailures, 0);
    });
  }

  test("another program commits again and again to a table of its own: that delays nothing and damages nothing", async (t) => {
    const { model, hooks, a } = await syncedModel(t);
    nft("add table ip theirs; add chain ip theirs c");
    nft(`flush chain ip ${TABLE} ${clusterChain(a)}`);
    let commits = 0;
    const commit = (): void => {
      commits += 1;
      nft("flush chain ip theirs c; add rule ip theirs c drop");
      if (commits < 8) hooks.beforeTransaction = commit;
    };
    hooks.afterRead = commit;
    assert.deepEqual((await model.rig.sync({ full: true })).failures, []);
    assert.ok(commits > 1);
    hooks.beforeTransaction = undefined;
    const found = listed();
    model.rig.restart();
    await model.rig.sync();
    assert.equal(listed(), found);
    assert.equal(model.rig.metrics.syncFailures, 0);
  });

  test("announcements overrun the receive buffer: what was damaged behind it is repaired", async (t) => {
    const { model, a } = await syncedModel(t, { receiveBufferBytes: 4096 });
    const before = listed();
    // Watching has begun once other programs' changes are reported.
    while (model.rig.lost.length === 0) {
      nft(`add rule ip ${TABLE} ${clusterChain(a)} drop`);
      await sleep(5);
    }
    await model.rig.sync();
    model.rig.lost.length = 0;
    const many = Array.from(
      { length: 3000 },
      (_, n) => `add element ip theirs addresses { 10.9.${n >> 8}.${n & 255} }`,
    );
    const noise = ["add table ip theirs", "add set ip theirs addresses { type ipv4_addr ; }", ...many];
    nft([...noise, `flush chain ip ${TABLE} ${clusterChain(a)}`].join("\n"));
    await until("the loss", () => model.rig.lost.length > 0);
    assert.ok(model.rig.lost.includes(undefined), "anything may have been damaged");
    const warning = model.rig.log.findLast(({ level }) => level === "warn");
    assert.equal(warning?.facts.wholeTable, true);
    await model.rig.sync();
    nft("delete table ip theirs");
    assert.equal(listed(), before);
  });

  test("a refused Service that is mended serves within a second beside 1,000, though nothing else changes", async (t) => {
    const ruleset = openNetlinkRuleset();
    const table = ruleset.open({ family: "ip", table: TABLE });
    const ports = Array.from({ length: 1000 }, (_, index) => port(`s${index}`, `10.96.${index >> 8}.${index & 255}`));
    const bad = ports[500] ?? assert.fail();
    let isRefused = true;
    const transact: Nftables["transact"] = async (operations, options) => {
      const all = [...operations];
      const at = all.findIndex((one) => one.kind === "add-rule" && one.chain === clusterChain(bad));
      if (isRefused && at >= 0) throw new NftError("unsupported", "refused on purpose", at);
      await table.transact(all, options);
    };
    const cluster = new TestCluster();
    const backend = new NftablesBackend({
      config: CONFIGS.IPv4,
      nft: { ...table, transact },
      nodePortIPs: async () => ({ kind: "ips", ips: [] }),
      metrics: { syncFailures: { inc() {} }, cleanupFailures: { inc() {} } },
      log: silentLogger,
    });
    const stop = new AbortController();
    let requests = 0;
    const watching = backend.monitor(
      () => {},
      stop.signal,
      () => {
        requests += 1;
      },
    );
    t.after(async () => {
      stop.abort();
      await watching;
      await ruleset.close();
    });
    for (const one of ports) cluster.set(one, [remote("10.180.0.1")]);
    const firstMs = performance.now();
    assert.equal((await cluster.driver.sync(backend)).failures.length, 1);
    const comparedMs = performance.now() - firstMs;
    isRefused = false;
    const startMs = performance.now();
    cluster.setEndpoints(bad, [remote("10.180.0.2")]);
    // A sync may be requested while one is under way.
    for (let before = requests; (await cluster.driver.sync(backend)).failures.length > 0; before = requests) {
      await until("the request of a sync", () => requests > before);
    }
    const elapsedMs = performance.now() - startMs;
    assert.match(listed(), /10\.180\.0\.2/);
    // The rest is four times as long as the comparison took, however slow the machine was just then.
    assert.ok(elapsedMs < Math.max(stretched(1000), 8 * comparedMs), `${elapsedMs} ms after ${comparedMs} ms`);
  });

  test("killed between building a batch and sending it: the kernel has all of the old, and the next process all of the new", () => {
    const run = (...args: string[]) =>
      spawnSync(process.execPath, ["--no-warnings", KILLED, ...args], { encoding: "utf8", env: plainEnvironment() });
    assert.equal(run("2").signal, "SIGKILL");
    assert.equal(listed(), "\n");
    assert.equal(run("2", "whole").status, 0);
    const old = listed();
    assert.equal(run("3").signal, "SIGKILL");
    assert.equal(listed(), old);
    const { stdout, stderr } = run("3", "whole");
    assert.equal(Number(stdout), 2, `one chain is written: ${stderr}`);
    assert.match(listed(), /10\.180\.0\.3/);
    assert.equal(Number(run("3", "whole").stdout), 0);
  });
});

/** Without the variables that make a child part of this test run. */
function plainEnvironment(): NodeJS.ProcessEnv {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  return env;
}
