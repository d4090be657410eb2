/** What a process leaves in the kernel for the next one: when it is valid, and everything that voids it. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { LAYOUT_NAMES, type LayoutName } from "../../../src/dataplane/nftables/layout-name.ts";
import { RestartNote } from "../../../src/dataplane/nftables/restart-note.ts";
import { BackendRig } from "../../../src/dataplane/nftables/testing/backend-rig.ts";
import { openNetlinkRuleset } from "../../../src/kernel/nftables/netlink-nftables.ts";
import { type Nftables, NftError } from "../../../src/kernel/nftables/nftables.ts";
import { silentLogger } from "../../../src/logging/logger.ts";
import { local, port, remote, TestCluster } from "../../../testkit/dataplane/test-cluster.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { stretched } from "../../../testkit/support/patience.ts";
import { canonicalNftables } from "../../conformance/canonical-nftables.ts";

const TABLE = { family: "ip", table: "kube-proxy" } as const;

function nft(commands: string): void {
  execFileSync("nft", ["-f", "-"], { input: `${commands}\n`, stdio: ["pipe", "ignore", "pipe"] });
}

/** As users see it: a note is in no listing. */
function listed(): string {
  return execFileSync("nft", ["list", "ruleset"], { encoding: "utf8" });
}

/** With sets in any order. */
function compared(): string {
  const text = execFileSync("nft", ["-j", "list", "ruleset"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  return canonicalNftables(JSON.parse(text).nftables);
}

interface Start {
  readonly layout: LayoutName;
  readonly program?: string;
  /** The kernel rejects operations that mention this service port. */
  readonly refused?: string;
}

/** A process over this namespace's kernel. */
class Process {
  readonly rig: BackendRig;
  reads = 0;
  commits = 0;
  readonly ruleset = openNetlinkRuleset({
    onCommit: () => {
      this.commits += 1;
    },
  });
  readonly note: RestartNote;

  constructor(cluster: TestCluster, { layout, program = "one", refused }: Start) {
    cluster.driver.forget();
    this.note = new RestartNote({ ruleset: this.ruleset, table: TABLE, program, log: silentLogger });
    const kernel = this.ruleset.open(TABLE);
    const counted: Nftables = {
      ...kernel,
      read: (expected) => {
        this.reads += 1;
        return kernel.read(expected);
      },
      transact: async (operations, options) => {
        const all = [...operations];
        const at = refused === undefined ? -1 : all.findIndex((one) => JSON.stringify(one).includes(refused));
        if (at >= 0) throw new NftError("failed", "refused by the test", at);
        await kernel.transact(all, options);
      },
    };
    this.rig = new BackendRig(cluster.driver, { connect: () => counted, layout, restart: this.note });
  }

  /** Stops as the daemon does when told to. */
  async stop(): Promise<void> {
    this.rig.close();
    await this.rig.watching;
    await this.rig.backend.close();
    await this.note.leave();
    await this.ruleset.close();
  }

  async kill(): Promise<void> {
    this.rig.close();
    await this.rig.watching;
    await this.ruleset.close();
  }

  /** Its own changes have been announced: from now on those of others are told apart. */
  async untilWatching(): Promise<void> {
    const endMs = performance.now() + stretched(10_000);
    while (this.rig.lost.length === 0) {
      nft("flush chain ip kube-proxy services");
      await sleep(2);
      assert.ok(performance.now() < endMs, "nothing is watched");
    }
    while (this.rig.driver.isSyncDue) await this.rig.sync();
  }
}

function servedCluster(): TestCluster {
  const cluster = new TestCluster();
  cluster.set(port("a", "10.96.0.1"), [local("10.180.0.1"), remote("10.180.0.2")]);
  cluster.set(port("sticky", "10.96.0.2", { sessionAffinity: "ClientIP", stickyMaxAgeSeconds: 600, nodePort: 30080 }), [
    remote("10.180.0.3"),
  ]);
  cluster.set(port("none", "10.96.0.3"), []);
  return cluster;
}

const ELEMENTS = {
  Flat: "delete element ip kube-proxy endpoints-2 { 10.96.0.1 . tcp . 80 . 1 }",
  Compatible: "delete element ip kube-proxy cluster-ips { 10.96.0.1 }",
} as const;

/** Events between two processes after which the second one must check the table. */
const DOUBTS: readonly (readonly [what: string, meanwhile: (layout: LayoutName) => void])[] = [
  ["one element of ours", (layout) => nft(ELEMENTS[layout])],
  ["a chain of ours", () => nft("flush chain ip kube-proxy services")],
  ["a table of its own", () => nft("add table ip theirs")],
  ["a table, and takes it back", () => nft("add table ip theirs\ndelete table ip theirs")],
  [
    "our table for its listing",
    () => {
      const text = listed();
      nft(`flush ruleset\n${text}`);
    },
  ],
];

inNetns(import.meta.url, { name: "nftnote" }, () => {
  beforeEach(() => nft("flush ruleset"));

  for (const layout of LAYOUT_NAMES) {
    describe(layout, () => {
      /** A process has synced a cluster and was told to stop. */
      const left = async (cluster: TestCluster, start: Partial<Start> = {}): Promise<string> => {
        const process = new Process(cluster, { layout, ...start });
        await process.rig.sync();
        await process.stop();
        return listed();
      };

      test("nothing has happened: nothing is read or written, and what follows is right", async () => {
        const cluster = servedCluster();
        const first = new Process(cluster, { layout });
        await first.rig.sync();
        const before = listed();
        await first.stop();
        assert.equal(listed(), before);
        const next = new Process(cluster, { layout });
        const outcome = await next.rig.sync();
        assert.deepEqual([next.reads, next.commits, outcome.failures], [0, 0, []]);
        await next.untilWatching();
        cluster.set(port("a", "10.96.0.1"), [remote("10.180.0.2"), remote("10.180.0.7"), remote("10.180.0.8")]);
        cluster.delete(port("none", "10.96.0.3"));
        await next.rig.sync();
        await next.stop();
        const after = compared();
        nft("flush ruleset");
        await left(cluster);
        assert.equal(compared(), after);
      });

      test("a note counts as long as nothing is committed, also for the process after one that was killed", async () => {
        const cluster = servedCluster();
        await left(cluster);
        for (const _ of [1, 2]) {
          const next = new Process(cluster, { layout });
          await next.rig.sync();
          assert.deepEqual([next.reads, next.commits], [0, 0]);
          await next.kill();
        }
        const changing = new Process(cluster, { layout });
        await changing.rig.sync();
        cluster.set(port("a", "10.96.0.1"), [remote("10.180.0.9")]);
        await changing.rig.sync();
        await changing.kill();
        const last = new Process(cluster, { layout });
        await last.rig.sync();
        assert.deepEqual([last.reads > 0, last.commits], [true, 0]);
        await last.stop();
      });

      for (const [what, meanwhile] of DOUBTS) {
        test(`another program changes ${what} meanwhile`, async () => {
          const cluster = servedCluster();
          const before = await left(cluster);
          meanwhile(layout);
          const next = new Process(cluster, { layout });
          await next.rig.sync();
          assert.ok(next.reads > 0, "the table was not looked at");
          await next.stop();
          nft("add table ip theirs\ndelete table ip theirs");
          assert.equal(listed(), before);
        });
      }

      test("another program commits while the process runs and watches: it was not our table", async () => {
        const cluster = servedCluster();
        const process = new Process(cluster, { layout });
        await process.rig.sync();
        await process.untilWatching();
        // What was repaired is compared once more.
        await process.rig.sync({ full: true });
        nft("add table ip theirs");
        await process.stop();
        const next = new Process(cluster, { layout });
        await next.rig.sync();
        assert.deepEqual([next.reads, next.commits], [0, 0]);
        await next.stop();
      });

      test("another program changes our table just before the end", async () => {
        const cluster = servedCluster();
        const process = new Process(cluster, { layout });
        await process.rig.sync();
        await process.untilWatching();
        const before = listed();
        nft(ELEMENTS[layout]);
        await process.stop();
        const next = new Process(cluster, { layout });
        await next.rig.sync();
        assert.ok(next.reads > 0);
        assert.equal(listed(), before);
        await next.stop();
      });

      test("services have changed meanwhile, or endpoints, or the other way round", async () => {
        const cluster = servedCluster();
        await left(cluster);
        cluster.set(port("a", "10.96.0.1"), [local("10.180.0.1"), local("10.180.0.2")]);
        const next = new Process(cluster, { layout });
        await next.rig.sync();
        assert.ok(next.reads > 0);
        await next.stop();
      });

      test("another version or layout of the program, another table of facts, no note that it knows", async () => {
        const cluster = servedCluster();
        const reads = async (start: Partial<Start>, change?: (process: Process) => unknown): Promise<number> => {
          nft("flush ruleset");
          await left(cluster);
          const next = new Process(cluster, { layout, ...start });
          await change?.(next);
          await next.rig.sync();
          await next.stop();
          return next.reads;
        };
        assert.equal(await reads({}), 0);
        assert.ok((await reads({ program: "two" })) > 0);
        assert.ok((await reads({ layout: layout === "Flat" ? "Compatible" : "Flat" })) > 0);
        const moved = ({ rig }: Process) => Object.assign(rig.node, { nodePortIPs: { kind: "all" } });
        assert.ok((await reads({}, moved)) > 0);
        const garbled = async ({ ruleset }: Process) => {
          const generation = (await ruleset.open(TABLE).mark()).generation;
          const rule = { statements: [{ kind: "verdict", verdict: { kind: "jump", chain: "masquerading" } }] } as const;
          await ruleset.leaveNote(TABLE, { chain: "nat-postrouting", rule, content: "ip:", generation });
        };
        assert.ok((await reads({}, garbled)) > 0);
      });

      test("a process that the kernel has refused something leaves no note", async () => {
        const cluster = servedCluster();
        const refused = "10.96.0.1";
        const process = new Process(cluster, { layout, refused });
        assert.equal((await process.rig.sync()).failures.length, 1);
        await process.stop();
        const next = new Process(cluster, { layout });
        await next.rig.sync();
        assert.ok(next.reads > 0);
        assert.match(listed(), /10\.96\.0\.1/);
        await next.stop();
      });
    });
  }

  test("all that a service port or an endpoint says is in the digest", async () => {
    const base = port("a", "10.96.0.1", { nodePort: 30080 });
    const endpoint = remote("10.180.0.1");
    const layout = "Flat";
    const readsAfter = async (before: TestCluster, after: TestCluster): Promise<number> => {
      nft("flush ruleset");
      const process = new Process(before, { layout });
      await process.rig.sync();
      await process.stop();
      const next = new Process(after, { layout });
      await next.rig.sync();
      await next.stop();
      return next.reads;
    };
    const clusterOf = (service: object, one: object): TestCluster => {
      const cluster = new TestCluster();
      cluster.set({ ...base, ...service }, [{ ...endpoint, ...one }]);
      return cluster;
    };
    const other = (value: unknown): unknown =>
      typeof value === "boolean" ? !value : typeof value === "number" ? value + 1 : undefined;
    assert.equal(await readsAfter(clusterOf({}, {}), clusterOf({}, {})), 0);
    for (const [field, value] of Object.entries({ ...base, lostFrontends: undefined })) {
      if (other(value) === undefined) continue;
      assert.ok((await readsAfter(clusterOf({}, {}), clusterOf({ [field]: other(value) }, {}))) > 0, field);
    }
    assert.ok(
      (await readsAfter(clusterOf({}, {}), clusterOf({ lostFrontends: new Set(["tcp 10.96.0.9:80"]) }, {}))) > 0,
    );
    for (const [field, value] of Object.entries(endpoint)) {
      if (field === "port" || other(value) === undefined) continue;
      assert.ok((await readsAfter(clusterOf({}, {}), clusterOf({}, { [field]: other(value) }))) > 0, field);
    }
    for (const field of ["zoneHints", "nodeHints"]) {
      assert.ok((await readsAfter(clusterOf({}, {}), clusterOf({}, { [field]: ["x"] }))) > 0, field);
    }
  });
});
