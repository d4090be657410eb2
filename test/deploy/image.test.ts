/**
 * The image: built for real, looked into, and run in the place of kubeadm's. The last of the tests, since it takes the
 * longest when nothing is in .cache/.
 */
import assert from "node:assert/strict";
import { type Dirent, lstatSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { NetworkNamespace } from "../../src/demo/network-namespace.ts";
import { startProber } from "../../src/demo/prober-process.ts";
import { CONFIG_CONF } from "../apiserver/kubeadm-files.ts";
import { buildImage, type Image, imageSkip, inContainer, onlyChild } from "./image-under-test.ts";

const EXAMPLES = fileURLToPath(new URL("../../examples", import.meta.url));
const PATIENCE_MS = 60_000;
const SIZE_LIMIT_BYTES = 170e6;
/** Conntrack limits are the whole machine's, and read-only in a namespace of its own: leave them alone. */
const CONFIG = CONFIG_CONF.replace("maxPerCore: null", "maxPerCore: 0")
  .replace("tcpCloseWaitTimeout: null", "tcpCloseWaitTimeout: 0s")
  .replace("tcpEstablishedTimeout: null", "tcpEstablishedTimeout: 0s")
  .replace("nodePortAddresses: null", "nodePortAddresses: [primary]");

describe("the image", { skip: imageSkip() }, () => {
  let image: Image;

  before(async () => {
    image = await buildImage();
  });
  after(() => image.remove());

  async function node(t: TestContext): Promise<NetworkNamespace> {
    const namespace = await NetworkNamespace.create(`kpts-image-${process.pid}`);
    t.after(() => namespace.remove());
    return namespace;
  }

  function configFolder(t: TestContext, config: string): string {
    const folder = mkdtempSync(join(tmpdir(), "kpts-image-"));
    t.after(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, "config.conf"), config);
    return folder;
  }

  test("starts as kubeadm's DaemonSet starts it", async () => {
    assert.deepEqual(image.config.Entrypoint, ["/usr/local/bin/kube-proxy"]);
    assert.equal(await image.run("/usr/local/bin/kube-proxy", "--version"), "Kubernetes v1.36.2\n");
  });

  test("holds nothing to build or install with, and nothing that others than root may change", () => {
    const files = readdirSync(image.root, { recursive: true, withFileTypes: true }).map((entry: Dirent) => {
      const path = join(entry.parentPath, entry.name);
      return { path: path.slice(image.root.length), name: entry.name, stat: lstatSync(path) };
    });
    const builders = /^(npm|npx|tsc|biome|apt|apt-get|dpkg|gcc|perl|tar|.*\.d\.ts|.*\.map)$/;
    const unwanted = files.filter(({ name, path, stat }) => {
      return path.startsWith("/opt/kube-proxy/src/") || (!stat.isDirectory() && builders.test(name));
    });
    assert.deepEqual(
      unwanted.map(({ path }) => path),
      [],
    );
    const shared = files.filter(({ path, stat }) => {
      return (
        !stat.isSymbolicLink() && path !== "/tmp" && ((stat.mode & 0o6002) !== 0 || stat.uid !== 0 || stat.gid !== 0)
      );
    });
    assert.deepEqual(
      shared.map(({ path }) => path),
      [],
    );
    const bytes = files.reduce((sum, { stat }) => sum + (stat.isFile() ? stat.size : 0), 0);
    assert.ok(bytes < SIZE_LIMIT_BYTES, `${(bytes / 1e6).toFixed(0)} MB`);
  });

  test("takes the kind of iptables rules that the node already has", async (t) => {
    const namespace = await node(t);
    const mounts = { config: configFolder(t, CONFIG), manifests: EXAMPLES };
    const inside = async (...argv: readonly string[]) => {
      return (await namespace.exec(inContainer(image, mounts, argv))).stdout.trim();
    };
    const rule = (kind: "nft" | "legacy", words: string) => {
      return namespace.exec([`iptables-${kind}`, "-w", ...words.split(" ")] as [string, ...string[]]);
    };
    const kind = () => inside("/usr/local/bin/iptables-backend");
    assert.equal(await kind(), "nft");
    await rule("legacy", "-A INPUT -s 192.0.2.1 -j ACCEPT");
    assert.equal(await kind(), "legacy");
    await rule("nft", "-A INPUT -s 192.0.2.1 -j ACCEPT");
    assert.equal(await kind(), "nft");
    await rule("legacy", "-t mangle -N KUBE-IPTABLES-HINT");
    assert.equal(await kind(), "legacy");
    assert.match(await inside("/usr/sbin/iptables", "--version"), /\(legacy\)$/);
    await rule("nft", "-t mangle -N KUBE-KUBELET-CANARY");
    assert.equal(await kind(), "nft");
    assert.match(await inside("/usr/sbin/ip6tables-save", "--version"), /\(nf_tables\)$/);
  });

  for (const mode of ["iptables", "nftables"]) {
    test(`runs as PID 1 on a read-only file system in the ${mode} mode`, async (t) => {
      const namespace = await node(t);
      const mounts = { config: configFolder(t, CONFIG.replace('mode: ""', `mode: ${mode}`)), manifests: EXAMPLES };
      const command = ["/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf"];
      const argv = inContainer(image, mounts, [...command, "--hostname-override=node-a", "--manifests=/manifests"]);
      const daemon = namespace.spawn(argv, { stdio: ["ignore", "pipe", "pipe"] });
      let log = "";
      for (const stream of [daemon.stdout, daemon.stderr]) stream?.on("data", (text) => (log += String(text)));
      const prober = startProber(namespace);
      t.after(() => {
        daemon.kill("SIGKILL");
        prober.close();
      });
      const ended = new Promise<number | null>((resolve) => daemon.once("exit", resolve));
      const synced = /^kubeproxy_sync_proxy_rules_last_timestamp_seconds\{ip_family="IPv4"\} \d/m;
      const deadline = Date.now() + PATIENCE_MS;
      for (;;) {
        const { body } = await prober.fetch("http://127.0.0.1:10249/metrics", 5_000);
        if (synced.test(body)) break;
        assert.ok(daemon.exitCode === null && Date.now() < deadline, log);
        await sleep(100);
      }
      const [dump, rule] =
        mode === "iptables"
          ? ["iptables-nft-save", /-A KUBE-SERVICES .*-j KUBE-SVC-/]
          : ["nft list table ip kube-proxy", /dnat ip to numgen random/];
      const { stdout } = await namespace.exec(["sh", "-c", dump]);
      assert.ok(rule.test(stdout), "there are no rules of services");
      assert.doesNotMatch(log, /^E/m, log);
      assert.ok(daemon.pid !== undefined);
      process.kill(await onlyChild(daemon.pid), "SIGTERM");
      assert.equal(await ended, 0, log);
    });
  }
});
