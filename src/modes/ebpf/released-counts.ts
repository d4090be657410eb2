/** Connection counts of frontends that their Service gave up: the next owner starts from zero. */
import type { BpfMap } from "../../kernel/bpf/bpf.ts";
import type { IpFamily } from "../../net/ip.ts";
import { nameOfKey } from "./adopted-frontends.ts";
import { COUNT_KEY, FRONTEND_KEY } from "./socket-balancer/maps.ts";

export class ReleasedCounts {
  readonly #family: IpFamily;
  readonly #counts: BpfMap;
  /** Released since the last {@link forget}, by {@link nameOfKey}. */
  readonly #released = new Set<string>();

  constructor(family: IpFamily, counts: BpfMap) {
    this.#family = family;
    this.#counts = counts;
  }

  /** Call when a frontend has lost its owner. */
  note(key: Uint8Array): void {
    // Counting is off.
    if (this.#counts.definition.maxEntries <= 1) return;
    const refused = key.slice();
    refused[COUNT_KEY[this.#family].fields.isRefused.at] = 1;
    for (const counted of [key, refused]) this.#released.add(nameOfKey(counted));
  }

  /** Deletes released counts among perhaps tens of thousands. @param isServed whether a key is a frontend. @throws BpfError */
  forget(isServed: (key: Uint8Array) => boolean): void {
    if (this.#released.size === 0) return;
    const { address, isRefused } = COUNT_KEY[this.#family].fields;
    const { size } = FRONTEND_KEY[this.#family];
    // A key without an address stands for a node port.
    const nodePort = new Uint8Array(size);
    for (const [key] of this.#counts.entries()) {
      // Starts with the frontend's address; for a node port, with the node's address that the client used.
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
