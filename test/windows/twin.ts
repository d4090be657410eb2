/** What one full sync leaves on an HNS in memory, both families, for a cluster of manifests. */
import { readManifestText } from "../../src/agent/cluster/manifests/read-manifests.ts";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../../src/agent/settings/defaults.ts";
import { checkConfig } from "../../src/agent/settings/validate.ts";
import { offlineNode } from "../../src/contract/inspect/offline-node.ts";
import { parseGuid } from "../../src/modes/kernelspace/hcn/guid.ts";
import { isJsonObject, listOf, objectOf, textOf } from "../../src/modes/kernelspace/hcn/json-fields.ts";
import { KernelspaceRig, NETWORK } from "../../src/modes/kernelspace/testing/kernelspace-rig.ts";
import { SyncDriver } from "../../testkit/dataplane/sync-driver.ts";
import { MemoryHcn } from "../../testkit/fakes/hcn/memory-hcn.ts";

/** @param host lines of `fake-hns.c`: the network and the endpoints that are there already. */
export async function twinOf(objects: readonly object[], host: readonly string[]): Promise<MemoryHcn> {
  const hcn = new MemoryHcn({ takesAnyAddress: true });
  const network = hcn.addNetwork(NETWORK, "L2Bridge");
  for (const line of host.filter((one) => one.startsWith("E "))) {
    const document: unknown = JSON.parse(line.slice(line.indexOf("{")));
    if (!isJsonObject(document) || parseGuid(line.slice(2, 38)) === undefined)
      throw new TypeError(`no object: ${line}`);
    const addresses = listOf(document.IpConfigurations).map((one) => textOf(objectOf(one).IpAddress));
    hcn.addEndpoint({ network, name: textOf(document.Name), addresses, mac: textOf(document.MacAddress) });
  }
  const draft = applyPlatformDefaults({ ...resolveDocument(EMPTY_DOCUMENT), mode: "kernelspace" });
  const checked = checkConfig(draft);
  if (!checked.ok) throw new TypeError(checked.message);
  const cluster = await readManifestText(JSON.stringify({ apiVersion: "v1", kind: "List", items: objects }), "test");
  for (const family of ["IPv4", "IPv6"] as const) {
    const { state } = offlineNode(cluster, checked.config, family, () => {});
    const driver = new SyncDriver({ services: state.services, endpoints: state.endpoints });
    await new KernelspaceRig(driver, { family, host: hcn }).sync();
  }
  return hcn;
}
