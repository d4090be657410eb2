/** The program on Windows as far as Wine has it. All of it runs at once, for most of it waits. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { execProcess } from "../../src/kernel/process.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { bundleForWindows, HnsFile, prepareWine, startWindows, WineProcess } from "../../testkit/wine/wine-host.ts";
import { kernelspaceFollowsManifests } from "./wine-kernelspace.ts";
import { serviceFailsAlone, serviceStartsAndStops } from "./wine-service.ts";
import { assertEnded } from "./wine-support.ts";
import { SERVICE_INTERFACE, userspaceFollowsApiServer } from "./wine-userspace.ts";

/** Has service addresses for a moment. */
const CONTRACT_INTERFACE = "nic-c";

/** Windows lists interfaces that are up and have an address. */
async function addInterface(name: string, address: string): Promise<void> {
  const commands = [
    ["link", "add", name, "type", "veth", "peer", "name", `${name}-peer`],
    ["address", "add", address, "dev", name],
    ["link", "set", name, "up"],
    ["link", "set", `${name}-peer`, "up"],
  ];
  for (const words of commands) assert.equal((await execProcess("ip", words)).status, 0, words.join(" "));
}

inNetns(import.meta.url, { name: "wine", timeoutMs: 480_000, prepare: prepareWine }, () => {
  describe("under Wine", { concurrency: true }, () => {
    // With blanks, as Windows has them.
    const folder = join(mkdtempSync(join(tmpdir(), "kpts-wine-")), "Program Files");
    let endWindows = async (): Promise<void> => {};
    before(async () => {
      mkdirSync(folder);
      await addInterface(CONTRACT_INTERFACE, "169.254.1.1/16");
      await addInterface(SERVICE_INTERFACE, "169.254.2.1/16");
      endWindows = await startWindows({ INTERFACE_TO_ADD_SERVICE_IP: SERVICE_INTERFACE });
    });
    after(async () => {
      await endWindows();
      rmSync(join(folder, ".."), { recursive: true, force: true });
    });

    test("the boundaries to HNS and to netsh pass their contracts", async () => {
      const run = new WineProcess({
        ...(await bundleForWindows("testkit/wine/contract-main.ts")),
        args: [],
        hns: new HnsFile(join(folder, "contract.state")),
        env: { CONTRACT_INTERFACE },
        output: join(folder, "contract.log"),
      });
      await assertEnded(run);
      assert.match(run.log, /^ℹ pass (?:[2-9]\d)$/m, run.log);
      assert.match(run.log, /^ℹ fail 0$/m, run.log);
    });

    // One after the other: each looks for what another mode has left on the host.
    test("the program", async (t) => {
      const failing = serviceFailsAlone(folder);
      await t.test("kernelspace mode programs HNS from a folder of manifests, and stops on Ctrl-C", (inner) =>
        kernelspaceFollowsManifests(inner, folder),
      );
      await t.test("userspace mode serves the services of an API server at addresses that netsh has added", (inner) =>
        userspaceFollowsApiServer(inner, folder),
      );
      await t.test("as a Windows service fails in words where no manager has started it", () => failing);
      await t.test("runs as a Windows service, and stops with it", (inner) => serviceStartsAndStops(inner, folder));
    });
  });
});
