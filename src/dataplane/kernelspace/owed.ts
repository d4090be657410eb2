/** What a sync has to look at besides what changed: what an earlier one did not do, and what others have changed. No I/O. */
import type { Guid } from "../../kernel/hcn/guid.ts";
import type { IpAddress } from "../../net/ip.ts";
import type { WantedState } from "./wanted-state.ts";

export class Owed {
  /** Frontends. */
  readonly keys = new Set<string>();
  /** Of endpoints. */
  readonly addresses = new Set<IpAddress>();
  /** Load balancers that are to go. */
  readonly leftovers = new Set<Guid>();

  get isNothing(): boolean {
    return this.keys.size + this.addresses.size + this.leftovers.size === 0;
  }

  /** An endpoint has come or gone, or could not be made: what names its address must be looked at, too. */
  addAddress(address: IpAddress, wanted: WantedState): void {
    this.addresses.add(address);
    for (const key of wanted.keysNaming(address)) this.keys.add(key);
  }

  addAll({ keys, addresses, leftovers }: Owed): void {
    for (const key of keys) this.keys.add(key);
    for (const address of addresses) this.addresses.add(address);
    for (const id of leftovers) this.leftovers.add(id);
  }
}
