/**
 * A file that lists the Service addresses that this host was given: after a kill they stay on the interface, and only
 * this list tells the next run that it may remove them.
 */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import type { Logger } from "../../logging/logger.ts";
import { type IpAddress, parseIpAddress } from "../../net/ip.ts";

export class AddressLedger {
  readonly #path: string;
  readonly #log: Logger;
  /** The interface of each address. */
  readonly #interfaces: Map<IpAddress, string>;

  /** @param path of the file, whose folder is created with the first address. */
  constructor(path: string, log: Logger) {
    this.#path = path;
    this.#log = log;
    this.#interfaces = this.#read();
  }

  /** The name of the interface, by address. */
  get entries(): ReadonlyMap<IpAddress, string> {
    return this.#interfaces;
  }

  /** Records addresses. Called before they are added, so that none is forgotten. */
  add(addresses: Iterable<IpAddress>, interfaceName: string): void {
    const added = [...addresses].filter((address) => this.#interfaces.get(address) !== interfaceName);
    for (const address of added) this.#interfaces.set(address, interfaceName);
    if (added.length > 0) this.#write();
  }

  /** Forgets addresses that were removed. */
  remove(addresses: Iterable<IpAddress>): void {
    const removed = [...addresses].filter((address) => this.#interfaces.delete(address));
    if (removed.length > 0) this.#write();
  }

  #read(): Map<IpAddress, string> {
    try {
      const content: unknown = JSON.parse(readFileSync(this.#path, "utf8"));
      if (typeof content !== "object" || content === null || Array.isArray(content)) throw new Error("not an object");
      const found = new Map<IpAddress, string>();
      for (const [text, name] of Object.entries(content)) {
        const address = parseIpAddress(text);
        if (address === undefined || typeof name !== "string") throw new Error(`no address and interface: ${text}`);
        found.set(address, name);
      }
      return found;
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return new Map();
      this.#tell("cannot be read; addresses of an earlier run stay on their interface", error);
      return new Map();
    }
  }

  /** Writes the file atomically, or deletes it if there are no addresses. */
  #write(): void {
    try {
      if (this.#interfaces.size === 0) {
        rmSync(this.#path, { force: true });
        return;
      }
      mkdirSync(dirname(this.#path), { recursive: true });
      const draft = `${this.#path}.new`;
      writeFileSync(draft, `${JSON.stringify(Object.fromEntries(this.#interfaces), undefined, 1)}\n`);
      renameSync(draft, this.#path);
    } catch (error) {
      this.#tell("cannot be written; a restart may leave them on their interface", error);
    }
  }

  #tell(what: string, error: unknown): void {
    this.#log.error(`The list of service addresses ${what}`, error, { file: this.#path });
  }
}
