/** Addresses and MAC addresses of the host's interfaces, as an overlay needs them. Reference windows.md §1.3. */
import { networkInterfaces } from "node:os";
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";

export interface HostInterfaces {
  /** In lower case with colons. */
  readonly macs: ReadonlySet<string>;
  /** Of the interface with the address, the last one that has it; undefined when none has. */
  macOf(address: IpAddress): string | undefined;
}

/** Reads them now. */
export function hostInterfaces(read: typeof networkInterfaces = networkInterfaces): HostInterfaces {
  const byAddress = new Map<IpAddress, string>();
  const macs = new Set<string>();
  for (const entries of Object.values(read())) {
    for (const { address: text, mac } of entries ?? []) {
      const address = parseIpAddress(text);
      if (address !== undefined) byAddress.set(address, mac.toLowerCase());
      if (mac !== NO_MAC) macs.add(mac.toLowerCase());
    }
  }
  return { macs, macOf: (address) => byAddress.get(address) };
}

/** Of the loopback interface. */
const NO_MAC = "00:00:00:00:00:00";
