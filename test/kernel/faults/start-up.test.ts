/** How the daemon starts or says why it cannot, and what it does when what it was started with changes. */
import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { stretched } from "../../../testkit/support/patience.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { canonicalIptables } from "../../conformance/canonical-iptables.ts";
import { faultNode, nodeObject, prepareDaemon, served, startDaemon, writeManifest } from "./fault-node.ts";
import { ToolLog } from "./tool-log.ts";

const objects = served("web", 1);

function scratch(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "kpts-fault-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** Starts a program with a system folder that looks empty. */
const HIDE = 'mount --bind "$1" "$2" && shift 2 && exec "$@"';

describe("start-up", { concurrency: 2, skip: kernelSkip, timeout: stretched(90_000) }, () => {
  test("--init-only prepares the node, programs nothing and ends with status 0", async (t) => {
    const node = await faultNode(t);
    const daemon = prepareDaemon(t, node, { objects, args: ["--init-only"] });
    daemon.spawn();
    assert.equal(await daemon.ended(), 0, daemon.log);
    assert.match(daemon.log, /"System initialized and --init-only specified"/);
    assert.equal(node.readSysctl("net.ipv4.conf.all.route_localnet"), "1");
    assert.doesNotMatch(await daemon.saved("iptables-save"), /KUBE-/);
  });

  test("--init-only that is told to stop before the node is prepared ends with status 1", async (t) => {
    const node = await faultNode(t);
    const daemon = prepareDaemon(t, node, { master: "http://127.0.0.1:9", args: ["--init-only"] });
    daemon.spawn();
    await daemon.logged(/"Starting kube-proxy-ts"/);
    assert.equal(await daemon.stop("SIGTERM"), 1, daemon.log);
  });

  test("a configuration file that changes in place ends the daemon with status 1", async (t) => {
    const node = await faultNode(t);
    const daemon = await startDaemon(t, node, { objects });
    const before = canonicalIptables(await daemon.saved("iptables-save"));
    writeFileSync(join(daemon.folder, "config.json"), '{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1"}');
    assert.equal(await daemon.ended(), 1, daemon.log);
    assert.match(daemon.log, /content of the proxy server's configuration file was updated/);
    assert.equal(canonicalIptables(await daemon.saved("iptables-save")), before);
  });

  test("so does one that changes after it was read and before it is watched", async (t) => {
    const node = await faultNode(t);
    const hook = join(scratch(t), "write-first.cjs");
    writeFileSync(
      hook,
      `const fs = require("node:fs");
      const { openSync } = fs;
      fs.openSync = (path, ...rest) => {
        if (String(path).endsWith("config.json")) fs.appendFileSync(path, " ");
        return openSync(path, ...rest);
      };
      require("node:module").syncBuiltinESMExports();`,
    );
    const daemon = prepareDaemon(t, node, { objects, wrapper: ["env", `NODE_OPTIONS=--require=${hook}`] });
    daemon.spawn();
    assert.equal(await daemon.ended(), 1, daemon.log);
    assert.match(daemon.log, /content of the proxy server's configuration file was updated/);
  });

  test("a folder of manifests that is not there ends it with status 1 and its name", async (t) => {
    const node = await faultNode(t);
    const daemon = prepareDaemon(t, node, { objects });
    rmSync(daemon.manifests, { recursive: true });
    daemon.spawn();
    assert.equal(await daemon.ended(), 1, daemon.log);
    assert.match(
      daemon.log,
      /"command failed" err="cannot read the manifests in \S+\/manifests: name a folder .*ENOENT/,
    );
  });

  test("a folder of manifests that may not be read ends it with status 1 and its name", async (t) => {
    const node = await faultNode(t);
    const daemon = prepareDaemon(t, node, {
      objects,
      wrapper: [
        "setpriv",
        "--bounding-set=-dac_override,-dac_read_search",
        "--inh-caps=-dac_override,-dac_read_search",
      ],
    });
    chmodSync(daemon.manifests, 0o000);
    daemon.spawn();
    assert.equal(await daemon.ended(), 1, daemon.log);
    assert.match(
      daemon.log,
      /"command failed" err="cannot read the manifests in \S+\/manifests: name a folder .*EACCES/,
    );
  });

  test("without the iptables tools it ends with status 1 and says what to install", async (t) => {
    const node = await faultNode(t);
    const daemon = prepareDaemon(t, node, {
      objects,
      wrapper: ["unshare", "--mount", "sh", "-c", HIDE, "sh", scratch(t), "/usr/sbin"],
    });
    daemon.spawn();
    assert.equal(await daemon.ended(), 1, daemon.log);
    assert.match(
      daemon.log,
      /"command failed" err="iptables is not available on this host .*install the package iptables/,
    );
  });

  for (const backEnd of ["nft", "legacy"] as const) {
    test(`${backEnd}: a start looks for the tools of a family once, and makes its canaries with one`, async (t) => {
      const folder = mkdtempSync(join(scratch(t), "bin-"));
      const log = new ToolLog(folder, backEnd);
      const options = { objects, env: log.env, config: { iptables: { syncPeriod: "10m", minSyncPeriod: "1ms" } } };
      const node = await faultNode(t);
      const started = async (): Promise<string[]> => {
        const daemon = await startDaemon(t, node, options);
        const commands: string[] = [];
        // They start last, and watch from then on.
        await daemon.until("both canaries", async () => {
          commands.push(...log.taken());
          const saving = ["iptables", "ip6tables"].map((tool) => node.exec([`${tool}-${backEnd}-save`]));
          const saved = await Promise.all(saving);
          return saved.every(({ stdout }) => stdout.match(/^:KUBE-PROXY-CANARY/gm)?.length === 3);
        });
        commands.push(...log.taken());
        await daemon.stop();
        log.taken();
        // The canaries are created when there is time.
        return commands
          .filter((command) => command.startsWith("iptables"))
          .map((command) => command.replace(/ -w 5/, ""))
          .sort();
      };
      const restore = "iptables-restore --noflush --counters";
      const found = ["iptables --version", "iptables -t nat -S POSTROUTING", "iptables-save -t filter"];
      const names = backEnd === "nft" ? [] : ["iptables-save -t nat"];
      // Leaves out the check for another mode's leftovers, where only a tool can tell and there is a table by then.
      const withoutLook = (commands: readonly string[]): string[] => {
        const others = commands.filter((command) => command !== "iptables-save");
        assert.ok(commands.length - others.length <= (backEnd === "nft" ? 0 : 1), commands.join("\n"));
        return others;
      };
      // Jumps, rules, canaries.
      assert.deepEqual(withoutLook(await started()), [...found, ...names, restore, restore, restore].sort());
      const again = withoutLook(await started());
      const isCheck = (command: string) => command.startsWith("iptables -C ");
      assert.equal(again.filter(isCheck).length, 3, "jumps from nat, which is not read");
      assert.deepEqual(
        again.filter((command) => !isCheck(command)),
        [...found, ...names, restore, restore].sort(),
      );
    });
  }

  test("a stop that takes too long is cut and says so; of --cleanup the status tells", async (t) => {
    const cut = async (more: readonly string[], status: number) => {
      const folder = scratch(t);
      const asked = join(folder, "asked");
      writeFileSync(join(folder, "iptables"), `#!/bin/sh\ntouch '${asked}'\nexec sleep 600\n`, { mode: 0o755 });
      const daemon = prepareDaemon(t, await faultNode(t), { objects, env: { PATH: `${folder}:${process.env.PATH}` } });
      await daemon.namespace.exec(["iptables", "-t", "nat", "-N", "KUBE-SERVICES"]);
      daemon.spawn(undefined, more);
      await daemon.until("the tool, which never answers", () => existsSync(asked));
      assert.equal(await daemon.stop(), status, daemon.log);
      assert.match(daemon.log, /"Ended before everything was done: the time limit of a stop is over" limit="5s"/);
    };
    await Promise.all([cut([], 0), cut(["--cleanup"], 1)]);
  });

  test("an end that its configuration has asked for is cut, too, where a tool hangs", async (t) => {
    const folder = scratch(t);
    const [hang, asked] = [join(folder, "hang"), join(folder, "asked")];
    const script = `#!/bin/sh
export PATH='${process.env.PATH}:/usr/sbin'
[ -e '${hang}' ] || exec iptables-restore "$@"
touch '${asked}'
exec sleep 600
`;
    writeFileSync(join(folder, "iptables-restore"), script, { mode: 0o755 });
    const daemon = await startDaemon(t, await faultNode(t), {
      objects,
      env: { PATH: `${folder}:${process.env.PATH}` },
    });
    writeFileSync(hang, "");
    writeManifest(daemon, "more.json", { apiVersion: "v1", kind: "List", items: served("more", 2) });
    await daemon.until("the tool, which never answers", () => existsSync(asked));
    writeFileSync(join(daemon.folder, "config.json"), '{"apiVersion": "kubeproxy.config.k8s.io/v1alpha1"}');
    assert.equal(await daemon.ended(), 1, daemon.log);
    assert.match(daemon.log, /"Ended before everything was done: the time limit of a stop is over" limit="5s"/);
  });

  test("a start that has failed does not wait for a tool that hangs", async (t) => {
    const folder = scratch(t);
    writeFileSync(join(folder, "iptables"), "#!/bin/sh\nexec sleep 600\n", { mode: 0o755 });
    const daemon = prepareDaemon(t, await faultNode(t), {
      config: { mode: "iptables", detectLocalMode: "NodeCIDR" },
      env: { PATH: `${folder}:${process.env.PATH}` },
    });
    // Something to clean up, and a Node without a pod network.
    await daemon.namespace.exec(["iptables", "-t", "nat", "-N", "KUBE-PORTALS-CONTAINER"]);
    daemon.writeObjects([{ ...nodeObject, spec: {} }]);
    daemon.spawn();
    assert.equal(await daemon.ended(), 1, daemon.log);
    assert.match(daemon.log, /"command failed" err="timeout waiting for PodCIDR allocation on node \\"node-a\\""/);
  });
});
