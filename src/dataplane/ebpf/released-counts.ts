/** Counts of connections to frontends that their Service has given up: the next owner counts from zero. */
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import { COUNT_KEY, FRONTEND_KEY } from "../../kernel/bpf/socket-balancer/maps.ts";
import type { IpFamily } from "../../net/ip.ts";
import { nameOfKey } from "./adopted-frontends.ts";

export class ReleasedCounts {
  readonly #family: IpFamily;
  readonly #counts: BpfMap;
  /** Since the last {@link forget}, by {@link nameOfKey}. */
  readonly #released = new Set<string>();

  constructor(family: IpFamily, counts: BpfMap) {
    this.#family = family;
    this.#counts = counts;
  }

  /** A frontend has no owner any more. */
  note(key: Uint8Array): void {
    // Otherwise nothing is counted.
    if (this.#counts.definition.maxEntries <= 1) return;
    const refused = key.slice();
    refused[COUNT_KEY[this.#family].fields.isRefused.at] = 1;
    for (const counted of [key, refused]) this.#released.add(nameOfKey(counted));
  }

  /** There may be tens of thousands of counts. @param isServed whether there is a frontend with this key now. @throws BpfError */
  forget(isServed: (key: Uint8Array) => boolean): void {
    if (this.#released.size === 0) return;
    const { address, isRefused } = COUNT_KEY[this.#family].fields;
    const { size } = FRONTEND_KEY[this.#family];
    // Without an address, it is one.
    const nodePort = new Uint8Array(size);
    for (const [key] of this.#counts.entries()) {
      // It begins with that of the frontend, or with the address of the node at which a node port was asked.
      const dialled = key.subarray(0, size);
      nodePort.set(dialled.subarray(address.at + address.bytes), address.at + address.bytes);
      const isReleased =
        this.#released.has(nameOfKey(dialled)) ||
        (this.#released.has(nameOfKey(nodePort)) && !isServed(dialled.slice().fill(0, isRefused.at, isRefused.at + 1)));
      if (isReleased) this.#counts.delete(key);
    }
    this.#released.clear();
  }
}
