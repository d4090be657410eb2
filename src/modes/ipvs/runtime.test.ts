/** The ipvs mode where it cannot work or never ran; tests of its work run in the virtual machine (`*.vm.test.ts`). */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { skipWithoutIpvs } from "../../../testkit/support/kernel-modules.ts";
import { type Logger, silentLogger } from "../../logging/logger.ts";
import { cleanUp } from "./cleanup.ts";

const MAIN = fileURLToPath(new URL("../../tools/cli/main.ts", import.meta.url));

inNetns(import.meta.url, { name: "ipvsmode" }, () => {
  const skip = skipWithoutIpvs() === false && "this one has IPVS";

  test("a kernel without IPVS is refused, with the module's name and what to do", { skip }, (t) => {
    const folder = mkdtempSync(join(tmpdir(), "kpts-mode-"));
    t.after(() => rmSync(folder, { recursive: true }));
    const config = join(folder, "config.json");
    writeFileSync(
      config,
      JSON.stringify({
        apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
        kind: "KubeProxyConfiguration",
        mode: "ipvs",
        conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: "0s", tcpCloseWaitTimeout: "0s" },
      }),
    );
    const { status, stderr } = spawnSync(process.execPath, [MAIN, `--config=${config}`, `--manifests=${folder}`], {
      encoding: "utf8",
    });
    assert.equal(status, 1, stderr);
    assert.match(
      stderr,
      /can't use the IPVS proxier: ipvs not supported by the kernel: the module ip_vs is missing: load it \(modprobe ip_vs\), or install a kernel that has it, or choose another proxy mode/,
    );
  });

  test("where the mode never was, there is nothing to clean up, and that is no failure", async () => {
    const errors: string[] = [];
    const log: Logger = {
      ...silentLogger,
      warn: (message) => errors.push(message),
      error: (message) => errors.push(message),
    };
    assert.equal(await cleanUp(log), true);
    assert.deepEqual(errors, []);
  });
});
