/** Where this node's maps and links outlive the process, and how what an earlier one has left there goes. */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { findPinFolder, type PinFolder, USUAL_FOLDER } from "../../kernel/bpf/pin-folder.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip.ts";
import { NO_FOLDER } from "./config.ts";
import { SocketPins } from "./socket-pins.ts";

/**
 * The folder of this network namespace: proxies of several nodes on one machine share the file system.
 * @param cookie of the network namespace.
 * @returns undefined when nothing is to be kept. @throws Error when the cookie is not known.
 */
export function pinFolderOf({ ebpf }: KubeProxyConfig, cookie: () => bigint): PinFolder | undefined {
  if (ebpf.pinFolder === NO_FOLDER) return undefined;
  const found = findPinFolder(ebpf.pinFolder);
  return found.ok ? { ok: true, path: `${found.path}/${cookie()}` } : found;
}

/**
 * Ends what earlier processes have left: in the configured folder, and in the usual one.
 * @param families whose. @default all @throws BpfError when something is left.
 */
export async function endPins(
  bpf: Bpf,
  config: KubeProxyConfig | undefined,
  cookie: () => bigint,
  families: readonly IpFamily[] = IP_FAMILIES,
): Promise<void> {
  const configured = config?.ebpf.pinFolder ?? "";
  const folders = new Set([USUAL_FOLDER, ...(configured === "" || configured === NO_FOLDER ? [] : [configured])]);
  for (const folder of folders) {
    if (!findPinFolder(folder).ok || bpf.pins.list(folder) === undefined) continue;
    const own = `${folder}/${cookie()}`;
    const { udpDisconnector } = await import("../../kernel/sock-diag/disconnect-udp.ts");
    for (const family of families) {
      if (bpf.pins.list(`${own}/${family}`) === undefined) continue;
      await new SocketPins(bpf.pins, own, family).endWithSockets(udpDisconnector());
    }
    for (const path of [own, folder]) if (bpf.pins.list(path)?.length === 0) bpf.pins.remove(path);
  }
}
