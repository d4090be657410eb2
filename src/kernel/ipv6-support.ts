/** Whether this network namespace has IPv6: reference node.md §11. */
import { access } from "node:fs/promises";
import type { Sysctls } from "./sysctl.ts";

interface Ipv6SupportDeps {
  /** @default the kernel's own */
  readonly sysctls?: Pick<Sysctls, "read">;
  /** Exists only where the kernel has IPv6. @default /proc/net/if_inet6 */
  readonly interfacesFile?: string;
}

/** Never throws; an unreadable `disable_ipv6` counts as not set. */
export async function isIpv6Supported(deps: Ipv6SupportDeps = {}): Promise<boolean> {
  // Windows always has it.
  if (process.platform === "win32") return true;
  try {
    await access(deps.interfacesFile ?? "/proc/net/if_inet6");
  } catch {
    return false;
  }
  const sysctls = deps.sysctls ?? (await import("./sysctl.ts")).fileSysctls();
  const disabled = await sysctls.read("net/ipv6/conf/all/disable_ipv6").catch(() => 0);
  return disabled !== 1;
}
