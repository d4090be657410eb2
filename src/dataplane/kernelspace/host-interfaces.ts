/** Addresses and MAC addresses of the host's interfaces, as an overlay needs them. Reference windows.md §1.3. */
import { networkInterfaces } from "node:os";
import { type IpAddress, isUnspecified, parseIpAddress } from "../../net/ip.ts";

interface HostInterfaces {
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

/** The MAC address of the interface with the node's address, which an overlay needs. @throws Error that says what to set. */
export function hostMacOf(nodeIP: IpAddress, interfaces: HostInterfaces): string {
  const mac = interfaces.macOf(nodeIP);
  if (mac !== undefined) return mac;
  const why = isUnspecified(nodeIP) ? "the node's address is not known" : "no interface has the node's address";
  throw new Error(`could not find host mac address for ${nodeIP}: ${why}; set --bind-address to one that is here`);
}

/** Of the loopback interface. */
const NO_MAC = "00:00:00:00:00:00";
