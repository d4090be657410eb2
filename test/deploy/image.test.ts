/**
 * The image: built for real, looked into, and run in the place of kubeadm's. The last of the tests, since it takes the
 * longest when nothing is in .cache/.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type Dirent, lstatSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { signalChild } from "../../src/kernel/child-process.ts";
import { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { POD_TOKEN } from "../apiserver/api-daemon.ts";
import { CONFIG_CONF, kubeconfigConf } from "../apiserver/kubeadm-files.ts";
import { ImageDaemon } from "./image-daemon.ts";
import { buildImage, IMAGE_COMMIT, type Image, imageSkip, inContainer } from "./image-under-test.ts";

const CLUSTER = fileURLToPath(new URL("./cluster-process.ts", import.meta.url));
const EXAMPLES = fileURLToPath(new URL("../../examples", import.meta.url));
const VERSION: string = JSON.parse(readFileSync(join(EXAMPLES, "../package.json"), "utf8")).version;
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
  after(() => image?.remove());

  async function node(t: TestContext): Promise<NetworkNamespace> {
    const namespace = await NetworkNamespace.create(`kpts-image-${process.pid}`);
    t.after(() => namespace.remove());
    return namespace;
  }

  /** A folder with these files, for a mount. */
  function folderOf(t: TestContext, files: Readonly<Record<string, string>>): string {
    const folder = mkdtempSync(join(tmpdir(), "kpts-image-"));
    t.after(() => rmSync(folder, { recursive: true }));
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    return folder;
  }

  function start(t: TestContext, ...args: ConstructorParameters<typeof ImageDaemon>): ImageDaemon {
    const daemon = new ImageDaemon(...args);
    t.after(() => daemon.dispose());
    return daemon;
  }

  test("starts as kubeadm's DaemonSet starts it", async () => {
    assert.deepEqual(image.config.Entrypoint, ["/usr/local/bin/kube-proxy"]);
    const words = (await image.run("/usr/local/bin/kube-proxy", "--version")).split("\n");
    assert.equal(words[0], "Kubernetes v1.37.0");
    assert.ok(words[1]?.startsWith(`kube-proxy-ts ${VERSION} (commit ${IMAGE_COMMIT}, Node.js v`), words[1]);
    assert.deepEqual(image.config.Labels, {
      "org.opencontainers.image.title": "kube-proxy-ts",
      "org.opencontainers.image.description": "A drop-in replacement for kube-proxy, in TypeScript",
      "org.opencontainers.image.version": VERSION,
      "org.opencontainers.image.revision": IMAGE_COMMIT,
      "org.opencontainers.image.licenses": "Apache-2.0",
      ...Object.fromEntries(
        Object.entries(Object(image.config.Labels)).filter(([name]) => /^io\.buildah\.|base\.name$/.test(name)),
      ),
    });
    const unknownKind = image.run("/bin/sh", "-c", "IPTABLES_BACKEND=other kube-proxy --version");
    await assert.rejects(unknownKind, /IPTABLES_BACKEND is "other": it must be nft or legacy, or not set/);
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
    const inside = async (...argv: readonly string[]) => {
      return (await namespace.exec(inContainer(image, {}, argv))).stdout.trim();
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

  test("in the place of kubeadm's image, with kubeadm's files, it programs what the API server has", async (t) => {
    const namespace = await node(t);
    const cluster = namespace.spawn([process.execPath, CLUSTER], { stdio: ["pipe", "pipe", "inherit"] });
    t.after(() => signalChild(cluster));
    assert.ok(cluster.stdout !== null);
    const [line = ""] = await once(createInterface(cluster.stdout), "line");
    const { url, ca }: { readonly url: string; readonly ca: string } = JSON.parse(String(line));
    const config = folderOf(t, { "config.conf": CONFIG, "kubeconfig.conf": kubeconfigConf(url) });
    const daemon = start(t, namespace, image, {
      "/var/lib/kube-proxy": config,
      "/run/xtables.lock": join(folderOf(t, { "xtables.lock": "" }), "xtables.lock"),
      "/lib/modules": folderOf(t, {}),
      "/run/secrets/kubernetes.io/serviceaccount": folderOf(t, { "ca.crt": ca, token: POD_TOKEN }),
    });
    await daemon.synced();
    assert.match((await namespace.exec(["iptables-nft-save"])).stdout, /--to-destination 10\.128\.1\.1:8080/);
    assert.doesNotMatch(daemon.log, /^E/m, daemon.log);
  });

  for (const mode of ["iptables", "nftables"]) {
    test(`runs as PID 1 on a read-only file system in the ${mode} mode`, async (t) => {
      const namespace = await node(t);
      const config = folderOf(t, { "config.conf": CONFIG.replace('mode: ""', `mode: ${mode}`) });
      const mounts = { "/var/lib/kube-proxy": config, "/run/manifests": EXAMPLES };
      const daemon = start(t, namespace, image, mounts, ["--manifests=/run/manifests"]);
      await daemon.synced();
      const [dump, rule] =
        mode === "iptables"
          ? ["iptables-nft-save", /-A KUBE-SERVICES .*-j KUBE-SVC-/]
          : ["nft list table ip kube-proxy", /dnat ip to numgen random/];
      const { stdout } = await namespace.exec(["sh", "-c", dump]);
      assert.ok(rule.test(stdout), "there are no rules of services");
      assert.doesNotMatch(daemon.log, /^E/m, daemon.log);
      assert.equal(await daemon.stop(), 0, daemon.log);
    });
  }
});
